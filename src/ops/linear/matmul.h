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

/// `batch` products c_i (+)= alpha · op(a_i) · op(b_j), all contiguous. Batches with the same c are added in order.
struct BatchedProduct {
  Tensor a;
  Tensor b;
  Tensor c;
  bool transpose_a = false;
  bool transpose_b = false;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  double alpha = 1.0;
  /// Which matrix of a, b and c each batch uses; empty means its own.
  std::vector<int64_t> a_index;
  std::vector<int64_t> b_index;
  std::vector<int64_t> c_index;
  int64_t batch = 0;
};

namespace cpu {
void batched_product(const BatchedProduct& args);
}  // namespace cpu
namespace cuda {
void batched_product(const BatchedProduct& args);
}  // namespace cuda

}  // namespace lamina::ops
