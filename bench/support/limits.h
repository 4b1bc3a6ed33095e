#pragma once

#include "lamina/tensor/tensor.h"
#include "support/suite.h"

namespace lamina::bench {

double measure_gemm_peak(const Context& context);
/// The STREAM triad a = b + s·c over arrays of 256 MiB.
class Triad {
 public:
  explicit Triad(const Device& device);
  void operator()() const;
  /// Bytes per run: two reads and a write.
  static double bytes();

 private:
  Tensor a_, b_, c_;
};

}  // namespace lamina::bench
