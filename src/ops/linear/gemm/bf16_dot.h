#pragma once

#include <cstdint>

#include "lamina/base/dtype.h"

namespace lamina::ops {

/// Two bf16 adjacent along k, as bf16 dot products read them; the first in the lower half.
struct Bf16Pair {
  uint32_t bits;
};

/// Whether this CPU has dot products of bf16 pairs with f32 sums (AVX512_BF16: vdpbf16ps). A CPU treats subnormal
/// operands and sums as zero there.
bool has_bf16_dot();

/// Microkernel of a product of packed pairs. Arguments as multiply_tile in gemm_panel-inl.h: depth (pairs), a, lda
/// (pairs), b, alpha, beta, c, ldc, ahead. Sums run over k in order.
using Bf16TileFn = void (*)(int64_t, const Bf16Pair*, int64_t, const Bf16Pair*, float, float, float*, int64_t,
                            const Bf16Pair*);

/// The microkernel for 4 or 8 rows and 1 to 3 vectors of 16 columns; with `direct` (8 rows only) A is read in place.
/// Only if has_bf16_dot().
Bf16TileFn bf16_tile(int64_t rows, int64_t vectors, bool direct);

/// sums[j·ld + i] += x_i · w_j for vectors x_i, ldx apart, and w_j, ldw apart, of k numbers: x, ldx, w, ldw, k, sums,
/// ld, and the columns to prefetch.
using Bf16DotsFn = void (*)(const bf16*, int64_t, const bf16*, int64_t, int64_t, float*, int64_t, const bf16* const*);

/// The function for `rows` x_i, `columns` w_j and `fetched` columns to prefetch: 1 to 4 rows against 1 column (1
/// fetched) or 6 columns (2, 3 or 6 fetched), or 1 row against 8 columns (8 fetched). Only if has_bf16_dot().
Bf16DotsFn bf16_dots(int rows, int columns, int fetched);

}  // namespace lamina::ops
