// Dot products of bf16 pairs (AVX512_BF16), written with intrinsics because Highway 1.0 does not use the instruction. A
// pair takes the place of one f32 in the panels, so tiles have the same shape as in f32 and do twice the
// multiplications.
#include "lamina/ops/linear/gemm/bf16_dot.h"

#include <hwy/highway.h>

#include <cstring>

#if HWY_ARCH_X86 && HWY_COMPILER_CLANG + HWY_COMPILER_GCC_ACTUAL > 0
#include <immintrin.h>
#define LAMINA_BF16_DOT 1
#endif

#ifdef LAMINA_BF16_DOT
HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512dq,avx512bw,avx512bf16")
namespace lamina::ops {
namespace {

constexpr int kUnroll = 4;
constexpr int64_t kLanes = 16;

HWY_INLINE __m512bh broadcast_pair(const Bf16Pair* from) {
  int bits = 0;
  std::memcpy(&bits, from, sizeof bits);  // if A is read in place, its elements are bf16
  return (__m512bh)_mm512_set1_epi32(bits);
}

/// sum += the outer product of step u: pair u of each row of A times row u of the panel of B.
template <int kRows, int kVectors, bool kDirect>
HWY_INLINE void add_pairs(const Bf16Pair* a, int64_t lda, const Bf16Pair* b, int u, __m512 (&sum)[kRows][kVectors]) {
  __m512bh row[kVectors];
#pragma GCC unroll 3
  for (int v = 0; v < kVectors; ++v) row[v] = (__m512bh)_mm512_load_si512(b + (u * kVectors + v) * kLanes);
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    const __m512bh element = broadcast_pair(kDirect ? a + i * lda + u : a + u * kRows + i);
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) sum[i][v] = _mm512_dpbf16_ps(sum[i][v], element, row[v]);
  }
}

template <int kRows, int kVectors, bool kDirect>
HWY_NOINLINE void multiply_pairs(int64_t k, const Bf16Pair* a, int64_t lda, const Bf16Pair* b, float alpha, float beta,
                                 float* c, int64_t ldc, const Bf16Pair* ahead) {
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      sum[i][v] = _mm512_setzero_ps();
      __builtin_prefetch(c + i * ldc + v * kLanes);
    }
  }
  int64_t l = 0;
  for (; l + kUnroll <= k; l += kUnroll) {
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) add_pairs<kRows, kVectors, kDirect>(a, lda, b, u, sum);
    __builtin_prefetch(ahead, 0, 2);
    ahead += kLanes;
    a += kUnroll * (kDirect ? 1 : kRows);
    b += kUnroll * kVectors * kLanes;
  }
  for (; l < k; ++l) {
    add_pairs<kRows, kVectors, kDirect>(a, lda, b, 0, sum);
    a += kDirect ? 1 : kRows;
    b += kVectors * kLanes;
  }
  const __m512 scale = _mm512_set1_ps(alpha);
  const __m512 keep = _mm512_set1_ps(beta);
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      float* at = c + i * ldc + v * kLanes;
      __m512 value = _mm512_mul_ps(sum[i][v], scale);
      if (beta != 0.0F) value = _mm512_fmadd_ps(keep, _mm512_loadu_ps(at), value);
      _mm512_storeu_ps(at, value);
    }
  }
}

/// out[i] += the horizontal sum of values[i].
template <int kCount>
HWY_INLINE void add_sums(const __m512 (&values)[kCount], float* out) {
  for (int i = 0; i < kCount; ++i) out[i] += _mm512_reduce_add_ps(values[i]);
}

/// Loads 32 numbers. If kSome, only those of the mask; the others become zero and are not read.
template <bool kSome>
HWY_INLINE __m512bh load_numbers(const bf16* from, __mmask32 some) {
  if constexpr (kSome) return (__m512bh)_mm512_maskz_loadu_epi16(some, from);
  return (__m512bh)_mm512_loadu_si512(from);
}

/// sum[j][i] += x_i · w_j over 32 numbers.
template <int kRows, int kColumns, bool kSome>
HWY_INLINE void add_dots(const bf16* x, int64_t ldx, const bf16* w, int64_t ldw, __mmask32 some,
                         __m512 (&sum)[kColumns][kRows]) {
  __m512bh given[kRows];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) given[i] = load_numbers<kSome>(x + i * ldx, some);
#pragma GCC unroll 8
  for (int j = 0; j < kColumns; ++j) {
    const __m512bh value = load_numbers<kSome>(w + j * ldw, some);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) sum[j][i] = _mm512_dpbf16_ps(sum[j][i], value, given[i]);
  }
}

template <int kRows, int kColumns, int kFetch>
HWY_NOINLINE void dot_pairs(const bf16* x, int64_t ldx, const bf16* w, int64_t ldw, int64_t k, float* sums, int64_t ld,
                            const bf16* const* ahead) {
  constexpr int64_t kStep = 2 * kLanes;
  __m512 sum[kColumns][kRows];
#pragma GCC unroll 8
  for (int j = 0; j < kColumns; ++j) {
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) sum[j][i] = _mm512_setzero_ps();
  }
  int64_t l = 0;
  for (; l + kStep <= k; l += kStep) {
#pragma GCC unroll 8
    for (int j = 0; j < kFetch; ++j) __builtin_prefetch(ahead[j] + l);
    add_dots<kRows, kColumns, false>(x + l, ldx, w + l, ldw, 0, sum);
  }
  if (l < k) {
    add_dots<kRows, kColumns, true>(x + l, ldx, w + l, ldw, (__mmask32{1} << (k - l)) - 1, sum);
  }
#pragma GCC unroll 8
  for (int j = 0; j < kColumns; ++j) add_sums(sum[j], sums + j * ld);
}

template <int kColumns, int kFetch>
Bf16DotsFn dots_of(int rows) {
  constexpr Bf16DotsFn kFns[4] = {dot_pairs<1, kColumns, kFetch>, dot_pairs<2, kColumns, kFetch>,
                                  dot_pairs<3, kColumns, kFetch>, dot_pairs<4, kColumns, kFetch>};
  return kFns[rows - 1];
}

}  // namespace
}  // namespace lamina::ops
HWY_POP_ATTRIBUTES
#endif

namespace lamina::ops {

#ifdef LAMINA_BF16_DOT
bool has_bf16_dot() {
  // Also checks that the operating system saves the registers.
  static const bool has = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return has;
}

Bf16TileFn bf16_tile(int64_t rows, int64_t vectors, bool direct) {
  static constexpr Bf16TileFn kDirect[3] = {multiply_pairs<8, 1, true>, multiply_pairs<8, 2, true>,
                                            multiply_pairs<8, 3, true>};
  static constexpr Bf16TileFn kPacked[2][3] = {
      {multiply_pairs<4, 1, false>, multiply_pairs<4, 2, false>, multiply_pairs<4, 3, false>},
      {multiply_pairs<8, 1, false>, multiply_pairs<8, 2, false>, multiply_pairs<8, 3, false>}};
  return direct ? kDirect[vectors - 1] : kPacked[rows / 8][vectors - 1];
}

Bf16DotsFn bf16_dots(int rows, int columns, int fetched) {
  if (columns == 8) return dot_pairs<1, 8, 8>;
  if (columns == 1) return dots_of<1, 1>(rows);
  return fetched == 6 ? dots_of<6, 6>(rows) : fetched == 3 ? dots_of<6, 3>(rows) : dots_of<6, 2>(rows);
}
#else
bool has_bf16_dot() { return false; }
Bf16DotsFn bf16_dots(int /*rows*/, int /*columns*/, int /*fetched*/) { return nullptr; }
Bf16TileFn bf16_tile(int64_t /*rows*/, int64_t /*vectors*/, bool /*direct*/) { return nullptr; }
#endif

}  // namespace lamina::ops
