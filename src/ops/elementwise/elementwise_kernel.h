#pragma once

#include "lamina/ops/elementwise/elementwise.h"

namespace lamina::ops {

enum class Combine : uint8_t { sum, product, first };  ///< see Combination

/// Kernel arguments: out = a + alpha·b (sum), alpha·a·b (product) or alpha·a (first; b is undefined). a and b are
/// contiguous and have out's rank; each of their extents is out's or 1.
struct Combination {
  Tensor a;
  Tensor b;
  Tensor out;
  Combine kind;
  double alpha;
};

namespace cpu {
void combine(const Combination& args);
}  // namespace cpu
namespace cuda {
void combine(const Combination& args);
}  // namespace cuda

}  // namespace lamina::ops
