#pragma once

#include "lamina/ops/linear/norm_linear.h"

namespace lamina::ops::cuda {

struct StreamedLinear {
  NormLinearForward product;
  Tensor z;     ///< [rows, out], written when defined; of a product that is not gated
  bool normed;  ///< else product.x is multiplied as it is
};
/// One launch, for f32 rows of x on a device whose kernels may begin early. False, with nothing done, for what it does
/// not take.
bool linear_streamed(const StreamedLinear& args);

}  // namespace lamina::ops::cuda
