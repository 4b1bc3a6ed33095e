#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina {

/// Measures how long a GPU has nothing to do between pieces of work. Kernels at the beginning and end of each piece
/// read the GPU's clock, so they may be part of a CUDA graph (tensor/replay.h).
class IdleTime {
 public:
  explicit IdleTime(const Device& device);

  void begin();  ///< call within the work, first
  void end();    ///< call within the work, last
  /// Share of the time between the first and the last piece of work since the previous call in which the GPU idled.
  /// Waits for the GPU.
  double take_share();

 private:
  Tensor times_;  ///< [4] i64, in ns: end of the last piece (0: none), begin of the current one, idle and busy sums
};

}  // namespace lamina
