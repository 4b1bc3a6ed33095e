// Multiplies one block of rows of A with packed columns of B, one tile of C after the other.
#if defined(LAMINA_OPS_LINEAR_GEMM_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_LINEAR_GEMM_BLOCK_INL_H_
#undef LAMINA_OPS_LINEAR_GEMM_BLOCK_INL_H_
#else
#define LAMINA_OPS_LINEAR_GEMM_BLOCK_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/linear/gemm/bf16_tile.h"
#include "lamina/ops/linear/gemm/gemm_plan-inl.h"
#include "lamina/ops/linear/gemm/gemm_scratch.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

/// One block of C and one range of k: the work between packing and the microkernel.
template <class E>
struct Pass {
  int64_t row, row_end, column, column_end;  // position in C
  int64_t chunk_end;                         // end of the chunk's columns
  int64_t k0, depth;                         // position along k
  int64_t chunk_depth;                       // depth to which the panels are packed
  int64_t chunk_k0;
  const E* a;  // packed rows from `row` on
  const E* b;  // packed columns from `column` on
  SumOf<E> beta;
  SumOf<E>* c;  // address of element (row, column)
  int64_t ldc;
};

/// The rows of A that come next, if A is read in place. Tiles prefetch them.
template <class E>
struct NextRows {
  const E* at = nullptr;
  const E* end = nullptr;
};

template <class T>
void copy_part(const T* from, int64_t ld_from, int64_t rows, int64_t columns, T* to, int64_t ld_to) {
  for (int64_t i = 0; i < rows; ++i) std::copy_n(from + i * ld_from, columns, to + i * ld_to);
}

template <class E>
void multiply_block(const Plan<E>& plan, const Pass<E>& pass, NextRows<E>& next) {
  using T = SumOf<E>;
  const T alpha = plan.product->alpha;
  const int64_t lda = plan.product->a.ld / (kIsPair<E> ? 2 : 1);
  HWY_ALIGN T tile[kRowsOf<E> * kTileColumns<E>];
  // Number of elements that one tile prefetches.
  const int64_t lines = kIsTiled<E> ? pass.depth / kTileSide * kTilePrefetches : pass.depth / kUnroll;
  const int64_t fetched = lines * kCacheLine<E>;
  int64_t columns = 0;
  for (int64_t j = pass.column; j < pass.column_end; j += columns) {
    columns = panel_columns<E>(j, pass.chunk_end);
    const int64_t width = round_up(columns, kLanes<E>);
    const E* b = pass.b + (j - pass.column) * pass.chunk_depth + (pass.k0 - pass.chunk_k0) * width;
    for (int64_t i = pass.row; i < pass.row_end; i += kRowsOf<E>) {
      const int64_t rows = std::min(kRowsOf<E>, pass.row_end - i);
      const int64_t height = panel_rows<E>(i, pass.row_end);
      const bool direct = plan.direct && rows == kRowsOf<E>;
      const E* a = direct ? static_cast<const E*>(plan.product->a.data) + i * lda + pass.k0
                          : pass.a + (i - pass.row) * pass.chunk_depth + (pass.k0 - pass.chunk_k0) * height;
      const int64_t down = i - pass.row;
      T* c = pass.c + down * pass.ldc + j - pass.column;
      // Each tile of this panel prefetches a part of the next panel.
      const int64_t stretch = down / kRowsOf<E> * fetched;
      const bool more = j + columns < pass.column_end && stretch < width * pass.depth;
      const E* ahead = more ? b + width * pass.chunk_depth + stretch : a;
      if (next.at < next.end) {
        ahead = next.at;
        next.at += fetched;
      }
      const bool whole = rows == height && columns == width;
      if constexpr (kIsTiled<E>) {
        const TiledFn multiply = bf16_tiled(plan.unit, height, width / kLanes<E>, direct);
        // Sums start from C, also in partial tiles at the edges. So the result of an element does not depend on its
        // tile.
        if (alpha == 1 && (pass.beta == 0 || pass.beta == 1)) {
          if (whole) {
            multiply(pass.depth, a, lda, b, pass.beta, c, pass.ldc, ahead);
            continue;
          }
          if (pass.beta == 1) copy_part(c, pass.ldc, rows, columns, tile, kTileColumns<E>);
          multiply(pass.depth, a, lda, b, pass.beta, tile, kTileColumns<E>, ahead);
          copy_part(tile, kTileColumns<E>, rows, columns, c, pass.ldc);
          continue;
        }
        multiply(pass.depth, a, lda, b, 0, tile, kTileColumns<E>, ahead);
      } else {
        const TileFn<E> multiply = tile_kernel<E>(height, width / kLanes<E>, direct);
        if (whole) {
          multiply(pass.depth, a, lda, b, alpha, pass.beta, c, pass.ldc, ahead);
          continue;
        }
        multiply(pass.depth, a, lda, b, T{1}, T{0}, tile, kTileColumns<E>, ahead);
      }
      merge_tile(tile, kTileColumns<E>, rows, columns, alpha, pass.beta, c, pass.ldc);
    }
  }
}

/// Multiplies a block of rows with columns [begin, end) of a chunk, which are packed at `columns`. has_rows: this
/// thread packed the same rows in its last call for this chunk.
template <class E>
void run_block(const Plan<E>& plan, const Chunk<E>& chunk, int64_t row, int64_t begin, int64_t end, const E* columns,
               bool has_rows) {
  using T = SumOf<E>;
  const FusedGemm<T>& p = *plan.product;
  const int64_t row_end = std::min(plan.product->m, row + kBlockRows);
  E* packed_rows = chunk.packed_rows != nullptr ? chunk.packed_rows + row * chunk.depth
                                                : gemm_scratch<E>(GemmScratch::rows, kBlockRows * chunk.depth);
  if (chunk.packed_rows == nullptr && !has_rows) pack_rows(plan, chunk, row, row_end, {0, chunk.depth}, packed_rows);
  NextRows<E> next;
  if (plan.direct) {
    const E* rows = static_cast<const E*>(p.a.data);
    const int64_t lda = p.a.ld / (kIsPair<E> ? 2 : 1);
    next = {rows + row_end * lda, rows + std::min(p.m, row_end + kBlockRows) * lda};
  }
  const int64_t step = kBlockColumns / kTileColumns<E> * kTileColumns<E>;
  for (int64_t j = begin; j < end;) {
    Pass<E> pass;
    pass.row = row, pass.row_end = row_end;
    pass.column = j, pass.column_end = std::min(end, cut_columns(chunk, j + step));
    pass.chunk_end = chunk.column_end;
    pass.chunk_k0 = chunk.k0, pass.chunk_depth = chunk.depth;
    pass.a = packed_rows;
    pass.b = columns + (j - begin) * chunk.depth;
    const GemmBlock block{row, row_end - row, j, pass.column_end - j};
    pass.ldc = p.c != nullptr ? p.ldc : round_up(block.columns, kLanes<E>);
    pass.c = p.c != nullptr ? p.c + block.row * p.ldc + block.column
                            : gemm_scratch<T>(GemmScratch::block, block.rows * pass.ldc);
    for (int64_t l = 0; l < chunk.depth; l += kDepth<E>) {
      pass.k0 = chunk.k0 + l;
      pass.depth = std::min(kDepth<E>, chunk.depth - l);
      pass.beta = pass.k0 == 0 ? p.beta : T{1};
      multiply_block(plan, pass, next);
    }
    if (p.finish && chunk.k0 + chunk.depth == plan.k) p.finish(pass.c, pass.ldc, block);
    j = pass.column_end;
  }
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
