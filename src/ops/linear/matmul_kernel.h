#pragma once

#include "lamina/ops/linear/matmul.h"

namespace lamina::ops {

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
