#pragma once

#include "lamina/ops/linear/matmul.h"

namespace lamina::ops {

/// Maps a batch to its matrix, if several batches share one. By default each batch has its own. The index is computed
/// per call, because a stored list would need memory for every batch, even on `meta` and for empty matrices.
class BatchIndex {
 public:
  BatchIndex() = default;
  /// `shared` has the rank of `batches`; each of its extents is 1 or that of `batches`.
  BatchIndex(const Shape& batches, const Shape& shared);

  bool is_shared() const { return is_shared_; }
  int64_t operator()(int64_t batch) const;

 private:
  Shape batches_;
  Shape shared_;
  bool is_shared_ = false;
};

/// Kernel arguments: `batch` products c_i = alpha · op(a_i) · op(b_j), all contiguous. Products with the same c are
/// added in order.
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
  BatchIndex a_index;
  BatchIndex b_index;
  BatchIndex c_index;
  int64_t batch = 0;
};

namespace cpu {
void batched_product(const BatchedProduct& args);
}  // namespace cpu
namespace cuda {
void batched_product(const BatchedProduct& args);
}  // namespace cuda

}  // namespace lamina::ops
