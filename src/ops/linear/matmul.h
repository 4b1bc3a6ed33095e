#pragma once

#include <vector>

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Options of matmul().
struct MatmulOptions {
  /// a's last two dimensions are stored transposed.
  bool transpose_a = false;
  bool transpose_b = false;  ///< likewise for b
  double alpha = 1.0;        ///< factor on the product
};

/// Batched matrix product: c = alpha · op(a) · op(b), where op is the identity or the transpose.
///   op(a) [..., m, k]   any floating type
///   op(b) [..., k, n]   dtype of a; leading dimensions equal a's, are 1 (broadcast), or are left out
///   c     [..., m, n]   dtype of a
/// Accumulates in f32 (f64 for f64). Backward: d op(a) = alpha · dc · op(b)ᵀ and d op(b) = alpha · Σ op(a)ᵀ · dc. The
/// sum is over the batches that share the matrix of b.
Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options = {});

}  // namespace lamina::ops
