#pragma once

#include <functional>
#include <memory>

#include "lamina/tensor/device.h"

namespace lamina {

/// Work that a GPU notes once and then repeats by itself, without the host launching each kernel: a CUDA graph. The
/// same memory is read and written again, so what goes in is copied into tensors that were there before, and what comes
/// out is read from tensors the work has left behind. Memory used in between stays reserved for it.
class Replay {
 public:
  static bool possible(const Device& device);

  /// `work` must not read values on the host, nor leave anything to it that differs from one run to the next.
  Replay(const Device& device, std::function<void()> work);
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  ~Replay();

  /// Runs the work. The first two times it is executed as it stands, so that libraries make their plans; the third time
  /// it is recorded, and from then on repeated. Random streams are those whose number is higher by `random_offset` than
  /// the keys say. Returns whether `work` was called, or only its record repeated.
  bool run(uint64_t random_offset = 0);

 private:
  struct State;
  static void record(State& state);
  std::unique_ptr<State> state_;
};

}  // namespace lamina
