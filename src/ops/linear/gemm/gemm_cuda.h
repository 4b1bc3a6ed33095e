#pragma once

#include <functional>

#include "lamina/tensor/tensor.h"

namespace lamina::ops::cuda {

/// C = alpha · op(A) · op(B) + beta · C (+ bias on each row), row-major; op is the identity or the transpose. `batch`
/// matrices are stride_* elements apart.
///   op(A) [m, k]   op(B) [k, n]   C [m, n]; ld* is the leading dimension (row stride) as stored.
/// A and B have one type (f32, bf16, f16), C has the same or f32. Accumulates in f32; f32 products do not use TF32.
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
  /// [n] of c_type, added to every row before any activation, or null.
  const void* bias = nullptr;
  /// Applies gelu_tanh after the bias and stores its argument in `pre_activation` ([m, n], c_type, ldc); bf16 and f16
  /// only.
  bool gelu_tanh = false;
  void* pre_activation = nullptr;
  /// [m, n] of c_type, ldc: multiplies the result by gelu_tanh' of it, in f32; null for none. bf16 and f16 only, not
  /// together with a bias or gelu_tanh.
  const void* gelu_tanh_of = nullptr;
};

void product(const Device& device, const Product& args);

/// Runs the product and `work`, which must be independent of each other. During CUDA graph capture they are captured as
/// parallel branches, so one fills the SMs that the other leaves idle; later work waits for both.
void product_overlapped(const Device& device, const Product& args, const std::function<void()>& work);

/// A product with gelu_tanh_of; returns false and does nothing if the library has no kernel for it.
bool try_product(const Device& device, const Product& args);

}  // namespace lamina::ops::cuda
