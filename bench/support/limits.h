#pragma once

#include "lamina/tensor/tensor.h"
#include "support/suite.h"

namespace lamina::bench {

double measure_gemm_peak(const Context& context);
/// a = b + s·c over 256 MiB each.
class Triad {
 public:
  explicit Triad(const Device& device);
  void operator()() const;
  /// Two reads and a write.
  static double bytes();

 private:
  Tensor a_, b_, c_;
};

}  // namespace lamina::bench
