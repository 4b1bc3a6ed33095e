#pragma once

#include <cstdint>

#include "lamina/base/dtype.h"

namespace lamina::ops {

// Microkernels with bf16 dot products (AVX512_BF16) for the GEMM on a CPU. Callers must check has_bf16_dot() first.

/// Two bf16 numbers adjacent along k, the operand of a bf16 dot product; the first is in the lower half.
struct Bf16Pair {
  uint32_t bits;
};

/// True if this CPU has dot products of bf16 pairs with f32 sums (AVX512_BF16: vdpbf16ps). The instruction treats
/// subnormal operands and sums as zero.
bool has_bf16_dot();

/// A microkernel for one tile of C, from packed pairs. Arguments as in multiply_tile() (gemm_panel-inl.h): depth (in
/// pairs), a, lda (in pairs), b, alpha, beta, c, ldc, ahead. Sums run over k in order.
using Bf16TileFn = void (*)(int64_t, const Bf16Pair*, int64_t, const Bf16Pair*, float, float, float*, int64_t,
                            const Bf16Pair*);

/// The microkernel for 4 or 8 rows and 1 to 3 vectors of 16 columns. If `direct` (8 rows only), A is read in place.
/// Requires has_bf16_dot().
Bf16TileFn bf16_tile(int64_t rows, int64_t vectors, bool direct);

/// Dot products sums[j·ld + i] += x_i · w_j of k numbers, for vectors x_i with stride ldx and w_j with stride ldw.
/// Arguments: x, ldx, w, ldw, k, sums, ld, and the columns to prefetch.
using Bf16DotsFn = void (*)(const bf16*, int64_t, const bf16*, int64_t, int64_t, float*, int64_t, const bf16* const*);

/// The function for `rows` vectors x_i, `columns` vectors w_j and `fetched` columns to prefetch. It exists for 1 to 4
/// rows with 1 column (1 fetched) or 6 columns (2, 3 or 6 fetched), and for 1 row with 8 columns (8 fetched). Requires
/// has_bf16_dot().
Bf16DotsFn bf16_dots(int rows, int columns, int fetched);

}  // namespace lamina::ops
