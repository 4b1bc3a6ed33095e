// Products of small bf16 matrices by AMX tile instructions (linear/gemm/bf16_tile.h), for the attention kernels.
// Operands are packed into panels of 32 rows or columns in bf16, so P and dS are rounded to bf16 like the inputs.
#if defined(LAMINA_OPS_ATTENTION_CPU_TILED_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_ATTENTION_CPU_TILED_PRODUCT_INL_H_
#undef LAMINA_OPS_ATTENTION_CPU_TILED_PRODUCT_INL_H_
#else
#define LAMINA_OPS_ATTENTION_CPU_TILED_PRODUCT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <optional>

#include "lamina/ops/attention/cpu/tile_scratch.h"
#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/linear/gemm/bf16_tile.h"
#include "lamina/ops/linear/gemm/gemm_pairs-inl.h"
#include "lamina/ops/linear/gemm/gemm_tiled-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

inline constexpr int64_t kPanelSide = 2 * kTileSide;  // rows or columns per panel

/// True if attention kernels for tensors of type T have products with tiles on this SIMD target.
template <class T>
inline constexpr bool kHasTiles = std::is_same_v<T, bf16>&& HWY_TARGET <= HWY_AVX3;

/// The tile unit for the products of an attention kernel; empty: compute in the accumulation type.
template <class T>
std::optional<TileUnit> tiles_for([[maybe_unused]] const Device& device) {
  if constexpr (kHasTiles<T>) {
    const ProductKernel kernel = product_kernel(device, DType::bf16);
    if (kernel == ProductKernel::bf16_tile) return TileUnit::amx;
    if (kernel == ProductKernel::bf16_tile_emulated) return TileUnit::emulated;
  }
  return std::nullopt;
}

/// Depth of a panel in pairs, for `numbers` numbers along k.
inline int64_t panel_depth(int64_t numbers) { return round_up(numbers, kPanelSide) / 2; }

/// Number of pairs in the panels of an operand with `side` rows or columns and `numbers` numbers along k.
inline int64_t panel_pairs(int64_t side, int64_t numbers) { return round_up(side, kPanelSide) * panel_depth(numbers); }

/// How an operand is stored: elements adjacent along k, or adjacent along its rows (A) or columns (B).
enum class PanelOrder : uint8_t { k_major, mn_major };

/// Packs `side` rows of A. Number (i, l) is at from[i·ld + l], or at from[l·ld + i] if mn_major.
template <PanelOrder kOrder, class S>
void pack_row_panels(const S* from, int64_t ld, int64_t side, int64_t numbers, TiledPair* to);

/// Packs `side` columns of B. Number (l, j) is at from[j·ld + l], or at from[l·ld + j] if mn_major.
template <PanelOrder kOrder, class S>
void pack_column_panels(const S* from, int64_t ld, int64_t side, int64_t numbers, TiledPair* to);

/// C [m, n] = A·B + beta · C from panels with `numbers` numbers along k; beta is 0 or 1. Rows and columns of C are read
/// and written up to a multiple of 32.
template <class A>
void multiply_panels(TileUnit unit, int64_t m, int64_t n, int64_t numbers, const TiledPair* a, const TiledPair* b,
                     A beta, A* c, int64_t ldc);

#if HWY_TARGET <= HWY_AVX3
template <PanelOrder kOrder, class S>
void pack_row_panels(const S* from, int64_t ld, int64_t side, int64_t numbers, TiledPair* to) {
  const int64_t depth = panel_depth(numbers);
  for (int64_t i = 0; i < side; i += kPanelSide) {
    const int64_t count = std::min(kPanelSide, side - i);
    if constexpr (kOrder == PanelOrder::k_major) {
      pack_tiled_k_major(from + i * ld, ld, count, numbers, depth, to + i * depth, kPanelSide);
    } else {
      pack_tiled_mn_major(from + i, ld, count, numbers, depth, to + i * depth, kPanelSide);
    }
  }
}

template <PanelOrder kOrder, class S>
void pack_column_panels(const S* from, int64_t ld, int64_t side, int64_t numbers, TiledPair* to) {
  const int64_t depth = panel_depth(numbers);
  for (int64_t j = 0; j < side; j += kPanelSide) {
    const int64_t count = std::min(kPanelSide, side - j);
    TiledPair* panel = to + j * depth;
    if constexpr (kOrder == PanelOrder::k_major) {
      pack_pairs_k_major(from + j * ld, ld, count, numbers, panel, kPanelSide);
    } else {
      pack_pairs_mn_major(hn::ScalableTag<float>(), from + j, ld, count, numbers, panel, kPanelSide);
    }
    std::fill(panel + (numbers + 1) / 2 * kPanelSide, panel + depth * kPanelSide, TiledPair{});
  }
}

template <class A>
void multiply_panels(TileUnit unit, int64_t m, int64_t n, int64_t numbers, const TiledPair* a, const TiledPair* b,
                     A beta, A* c, int64_t ldc) {
  const int64_t depth = panel_depth(numbers);
  const TiledFn multiply = bf16_tiled(unit, kPanelSide, 2, false);
  for (int64_t j = 0; j < n; j += kPanelSide) {
    for (int64_t i = 0; i < m; i += kPanelSide) {
      multiply(depth, a + i * depth, 0, b + j * depth, beta, c + i * ldc + j, ldc, a + i * depth);
    }
  }
}
#endif

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
