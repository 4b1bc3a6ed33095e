#pragma once

#include "lamina/ops/linear/norm_linear_kernel.h"

namespace lamina::ops::cuda {

struct RowStreamLinear {
  NormLinearForward product;
  Tensor z;     ///< [rows, out], written if defined; ungated products only
  bool normed;  ///< else product.x is used unnormalised
};
/// One launch, for f32 rows of x on a GPU with programmatic dependent launch. Returns false and does nothing if
/// unsupported.
bool linear_row_stream(const RowStreamLinear& args);

}  // namespace lamina::ops::cuda
