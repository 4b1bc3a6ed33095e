#pragma once

#include <cstdint>

#include "lamina/base/threads.h"

namespace lamina::ops {

/// C = alpha · op(A) · op(B) + beta · C, row-major, op the identity or the transpose.
///   op(A) [m, k]   op(B) [k, n]   C [m, n]; ld* is the distance between rows as stored.
/// beta = 0 never reads C. The result does not depend on the number of threads.
template <class T>
struct Gemm {
  bool transpose_a = false;
  bool transpose_b = false;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  T alpha = 1;
  const T* a = nullptr;
  int64_t lda = 0;
  const T* b = nullptr;
  int64_t ldb = 0;
  T beta = 0;
  T* c = nullptr;
  int64_t ldc = 0;
};

void gemm(const Threads& threads, const Gemm<float>& product);
void gemm(const Threads& threads, const Gemm<double>& product);

}  // namespace lamina::ops
