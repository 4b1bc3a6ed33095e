#pragma once

#include <memory>

#include "lamina/tensor/tensor.h"

namespace lamina {

/// Values on their way from a device to the host while the device goes on with what is queued behind them.
class Readback {
 public:
  /// Of dense i64 tensors of `count` elements on the device.
  Readback(const Device& device, int64_t count);
  Readback(const Readback&) = delete;
  Readback& operator=(const Readback&) = delete;
  ~Readback();

  /// What the tensor holds when the device gets there. Earlier values must have been waited for.
  void start(const Tensor& source);
  std::vector<int64_t> wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lamina
