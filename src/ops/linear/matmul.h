#pragma once

#include <vector>

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Options of matmul().
struct MatmulOptions {
  /// The last two dimensions are stored transposed.
  bool transpose_a = false;
  bool transpose_b = false;  ///< see transpose_a
  double alpha = 1.0;        ///< factor on the product
};

/// c = alpha · op(a) · op(b), batched.
///   op(a) [..., m, k]   any floating type
///   op(b) [..., k, n]   dtype of a; leading dimensions equal a's, are 1 (broadcast), or are left out
///   c     [..., m, n]   dtype of a
/// Accumulates in f32 (f64 for f64). Backward: d op(a) = alpha · dc · op(b)ᵀ, d op(b) = alpha · Σ op(a)ᵀ · dc over the
/// batches that share the matrix.
Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options = {});

}  // namespace lamina::ops
