#pragma once

#include <cstdint>
#include <type_traits>

#include "lamina/base/dtype.h"
#include "lamina/base/threads.h"
#include "lamina/tensor/device.h"

namespace lamina::ops {

// Matrix products on a CPU. Matrices are row-major; gemm/gemm_cpu.cpp explains the strategy.

/// A product C = alpha · op(A) · op(B) + beta · C, where op is the identity or the transpose.
///   op(A) [m, k]   op(B) [k, n]   C [m, n]. lda, ldb, ldc: leading dimension, the row stride as stored
/// With beta = 0, C is not read. With k = 0 the result is beta · C. Results do not depend on the number of threads.
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

/// A block of C: rows [row, row + rows), columns [column, column + columns).
struct GemmBlock {
  int64_t row = 0;
  int64_t rows = 0;
  int64_t column = 0;
  int64_t columns = 0;
};

/// The blocks passed to an epilogue start at multiples of this many rows and have at most as many rows. Their columns
/// may depend on the number of threads, so an epilogue may reduce over the rows of a block but not over its columns.
inline constexpr int64_t kGemmBlockRows = 96;

/// Non-owning reference to an epilogue: a function void(T* block, int64_t ld, const GemmBlock& where). It is called
/// once for each finished block of C, while the block is still in the CPU cache. Called from worker threads; must not
/// call gemm() itself.
template <class T>
class GemmEpilogue {
 public:
  GemmEpilogue() = default;
  template <class F, class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, GemmEpilogue>>>
  // NOLINTNEXTLINE(google-explicit-constructor): lets a call site pass a lambda
  GemmEpilogue(const F& fn)
      : object_(&fn), call_([](const void* object, T* block, int64_t ld, const GemmBlock& where) {
          (*static_cast<const F*>(object))(block, ld, where);
        }) {}
  explicit operator bool() const { return call_ != nullptr; }
  void operator()(T* block, int64_t ld, const GemmBlock& where) const { call_(object_, block, ld, where); }

 private:
  const void* object_ = nullptr;
  void (*call_)(const void*, T*, int64_t, const GemmBlock&) = nullptr;
};

/// One operand as stored. It may have any floating type and is converted to the computing type when it is packed.
struct GemmOperand {
  const void* data = nullptr;
  DType dtype = DType::f32;
  int64_t ld = 0;
  bool transpose = false;
};

/// How a product with f32 sums multiplies: with f32 instructions; with dot products of bf16 pairs (AVX512_BF16); with
/// bf16 tiles (Intel AMX); or with bf16 tiles emulated in plain loops, for tests.
enum class ProductKernel : uint8_t { f32, bf16_dot, bf16_tile, bf16_tile_emulated };

/// A product with mixed operand types and a fused epilogue. T is float, or double for f64 operands.
template <class T>
struct FusedGemm {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  T alpha = 1;
  GemmOperand a;
  GemmOperand b;
  T beta = 0;
  /// If null, C is never stored as a whole; only `finish` sees it, block by block. beta must then be 0.
  T* c = nullptr;
  int64_t ldc = 0;
  GemmEpilogue<T> finish;
  /// Kernels other than f32 round f32 operands to bf16. If the CPU lacks the kernel, f32 is used.
  ProductKernel kernel = ProductKernel::f32;
};

void gemm(const Threads& threads, const FusedGemm<float>& product);
void gemm(const Threads& threads, const FusedGemm<double>& product);

/// Writes the product to `out` [m, n] in any floating type, with row stride `ld`. product.c and product.finish are not
/// used. beta must be 0 unless the type is the computing type.
void gemm_to(const Threads& threads, const FusedGemm<float>& product, void* out, DType dtype, int64_t ld);
void gemm_to(const Threads& threads, const FusedGemm<double>& product, void* out, DType dtype, int64_t ld);

/// The kernel for the products of an operator whose activations have `dtype`: for bf16 the fastest that the CPU has,
/// else f32. ForcedKernel for "cpu_product" overrides it.
ProductKernel product_kernel(const Device& device, DType dtype);

/// True if such products take their operands in bf16.
inline bool rounds_to_bf16(const Device& device, DType dtype) {
  return product_kernel(device, dtype) != ProductKernel::f32;
}

}  // namespace lamina::ops
