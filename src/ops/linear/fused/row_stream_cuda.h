#pragma once

#include "lamina/ops/linear/norm_linear_kernel.h"

namespace lamina::ops::cuda {

/// A product with a plain weight, optionally after a norm.
struct RowStreamLinear {
  NormLinearForward product;
  Tensor z;     ///< [rows, out]: the argument of the activation, written if defined; not for gated products
  bool normed;  ///< normalize product.x first; else use it as it is
};
/// Computes it in one launch, for f32 rows of x on a GPU with programmatic dependent launch. Returns false, without
/// doing anything, if the case is not supported.
bool linear_row_stream(const RowStreamLinear& args);

}  // namespace lamina::ops::cuda
