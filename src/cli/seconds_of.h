#pragma once

#include <chrono>

#include "lamina/tensor/device.h"

namespace lamina::cli {

/// Wall time of `body` in seconds.
template <class F>
double seconds_of(const F& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Wall time of asynchronous work on a device. Synchronizes before and after `body`.
template <class F>
double seconds_of(const Device& device, const F& body) {
  device.synchronize();
  return seconds_of([&] {
    body();
    device.synchronize();
  });
}

}  // namespace lamina::cli
