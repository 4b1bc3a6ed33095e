#pragma once

#include <memory>

#include "lamina/tensor/tensor.h"

namespace lamina {

/// Asynchronous copies from device to host, while the device continues with queued work. The copy is part of the work
/// that a CUDA graph replays (tensor/replay.h), so nothing extra is launched between two replays.
class Readback {
 public:
  static constexpr size_t kMaxPending = 2;  ///< maximum number of pending copies

  /// For contiguous i64 tensors of `count` elements on the device.
  Readback(const Device& device, int64_t count);
  Readback(const Readback&) = delete;
  Readback& operator=(const Readback&) = delete;
  ~Readback();

  /// Copies the tensor's values at this point. Call within the replayed work.
  void write(const Tensor& source);
  /// Call after queueing one run of the work and before queueing the next.
  void mark();
  /// Waits for the oldest marked run and returns its values.
  std::vector<int64_t> wait();
  /// Number of runs that are marked and not yet waited for.
  size_t pending() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lamina
