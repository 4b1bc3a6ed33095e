#pragma once

#include <functional>
#include <memory>

#include "lamina/tensor/device.h"

namespace lamina {

/// A CUDA graph: captures the kernels of `work` once, and replays them without launching each one from the host.
/// Replays read and write the same memory. So inputs must be copied into existing tensors, and outputs are read from
/// tensors that the work keeps. The memory of intermediate results stays reserved for the graph.
class Replay {
 public:
  static bool possible(const Device& device);

  /// `work` must not read device values on the host, nor depend on host values that change between runs.
  Replay(const Device& device, std::function<void()> work);
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  ~Replay();

  /// Runs the work. The first two runs execute it directly (warm-up for libraries), the third captures it, and later
  /// ones replay the graph. `random_offset` is added to the stream numbers of random keys. Returns whether `work` was
  /// called, as opposed to a mere replay.
  bool run(uint64_t random_offset = 0);
  /// Whether the next run will only replay.
  bool is_captured() const;

 private:
  struct State;
  static void record(State& state);
  std::unique_ptr<State> state_;
};

}  // namespace lamina
