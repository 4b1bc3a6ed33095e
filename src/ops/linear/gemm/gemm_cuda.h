#pragma once

#include <functional>

#include "lamina/tensor/tensor.h"

namespace lamina::ops::cuda {

/// A GEMM on a GPU: C = alpha · op(A) · op(B) + beta · C (+ bias on each row). Matrices are row-major; op is the
/// identity or the transpose. There are `batch` products, whose matrices are stride_a, stride_b, stride_c elements
/// apart.
///   op(A) [m, k]   op(B) [k, n]   C [m, n]. lda, ldb, ldc: leading dimension, the row stride as stored
/// A and B have the same type (f32, bf16 or f16); C has this type or f32. Accumulates in f32; f32 products do not use
/// TF32. With beta = 0, C is not read.
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
  /// [n] of c_type, added to every row before any activation; or null.
  const void* bias = nullptr;
  /// Applies gelu_tanh after the bias and, if `pre_activation` ([m, n], c_type, row stride ldc) is set, stores its
  /// argument there. bf16 and f16 only.
  bool gelu_tanh = false;
  void* pre_activation = nullptr;
  /// [m, n] of c_type, row stride ldc: the result is multiplied by gelu_tanh' of it, in f32; or null. bf16 and f16
  /// only, not together with a bias or gelu_tanh.
  const void* gelu_tanh_of = nullptr;
};

/// Runs a product by cuBLASLt.
void product(const Device& device, const Product& args);

/// Runs the product and `work`, which must be independent of each other. During CUDA graph capture they become parallel
/// branches, so that one can use the SMs that the other leaves idle. Later work waits for both.
void product_overlapped(const Device& device, const Product& args, const std::function<void()>& work);

/// Runs a product with gelu_tanh_of. Returns false, without doing anything, if the library has no kernel for it.
bool try_product(const Device& device, const Product& args);

}  // namespace lamina::ops::cuda
