#pragma once

#include <memory>

#include "lamina/tensor/tensor.h"

namespace lamina {

/// Values on their way from a device to the host while the device goes on with what is queued behind them. They are
/// written as part of work that is repeated (tensor/replay.h), so that nothing has to be launched between two turns.
class Readback {
 public:
  static constexpr size_t kMost = 2;  ///< turns under way

  /// Of dense i64 tensors of `count` elements on the device.
  Readback(const Device& device, int64_t count);
  Readback(const Readback&) = delete;
  Readback& operator=(const Readback&) = delete;
  ~Readback();

  /// Within the work: what the tensor holds when the device gets there.
  void write(const Tensor& source);
  /// Called when a turn of the work has been queued, before the next one is.
  void mark();
  /// The oldest values marked that have not been waited for.
  std::vector<int64_t> wait();
  /// Turns marked and not waited for.
  size_t underway() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lamina
