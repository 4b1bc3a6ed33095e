#pragma once

#include <chrono>

namespace lamina::cli {

template <class F>
double seconds_of(const F& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace lamina::cli
