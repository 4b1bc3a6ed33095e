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

  /// Records `work`, which must not read values on the host; nothing is computed yet. It should have been run before,
  /// so that libraries have made their plans.
  Replay(const Device& device, const std::function<void()>& work);
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  ~Replay();

  /// Repeats the work. Random streams are those whose number is higher by `random_offset` than the recorded keys say.
  void run(uint64_t random_offset = 0);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lamina
