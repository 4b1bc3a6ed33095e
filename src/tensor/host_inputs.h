#pragma once

#include <memory>
#include <span>

#include "lamina/tensor/tensor.h"

namespace lamina {

/// Copies from host to device at the start of replayed work (tensor/replay.h), while the device is still busy with the
/// previous run. The copy is part of the CUDA graph, so that nothing but the graph is launched for a run: a separate
/// memcpy would leave the device idle for microseconds. The counterpart for results is Readback.
class HostInputs {
 public:
  static constexpr size_t kMaxPending = 2;  ///< maximum number of unfinished runs

  /// For contiguous i64 tensors of `count` elements on the device.
  HostInputs(const Device& device, int64_t count);
  HostInputs(const HostInputs&) = delete;
  HostInputs& operator=(const HostInputs&) = delete;
  ~HostInputs();

  /// Host memory for the values of the next run, which still holds those of the run before the previous one. That run
  /// must have finished; the previous one may still be queued or running, and reads other memory.
  std::span<int64_t> next() const;
  /// Copies the values to the tensor. Call within the replayed work, once.
  void read(const Tensor& target);
  /// Call after queueing a run.
  void mark();
  /// Call if queueing a run failed. Waits for the device.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lamina
