#pragma once

#include <functional>

#include "lamina/tensor/tensor.h"

namespace lamina::ops::cuda {

/// C = alpha · op(A) · op(B) + beta · C (+ bias along each row), row-major, op the identity or the transpose, for
/// `batch` matrices that lie stride_* elements apart.
///   op(A) [m, k]   op(B) [k, n]   C [m, n]; ld* is the distance between rows as stored.
/// A and B are of one type (f32, bf16, f16), C of it or f32. Sums in f32; f32 products are not rounded to tf32.
/// beta = 0 never reads C.
struct Product {
  bool transpose_a = false;
  bool transpose_b = false;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;
  float alpha = 1;
  float beta = 0;
  DType type = DType::f32;
  const void* a = nullptr;
  int64_t lda = 0;
  int64_t stride_a = 0;
  const void* b = nullptr;
  int64_t ldb = 0;
  int64_t stride_b = 0;
  DType c_type = DType::f32;
  void* c = nullptr;
  int64_t ldc = 0;
  int64_t stride_c = 0;
  /// [n] of c_type, added to every row before anything else, or null.
  const void* bias = nullptr;
  /// gelu_tanh after the bias, with its argument kept in `before` ([m, n], c_type, ldc); for bf16 and f16 alone.
  bool gelu_tanh = false;
  void* before = nullptr;
  /// [m, n] of c_type, ldc: the result is multiplied by gelu_tanh' of it, in f32; null for nothing of the kind. For
  /// bf16 and f16 alone, not together with a bias or gelu_tanh.
  const void* gelu_tanh_of = nullptr;
};

void product(const Device& device, const Product& args);

/// The product, and `work`, which neither needs it nor writes what it reads or writes. In a recording the two are apart
/// from each other, so that one fills the multiprocessors that the other leaves; what comes later waits for both.
void product_beside(const Device& device, const Product& args, const std::function<void()>& work);

/// A product with gelu_tanh_of; false, and nothing done, where the library has no kernel for that.
bool product_if_known(const Device& device, const Product& args);

}  // namespace lamina::ops::cuda
