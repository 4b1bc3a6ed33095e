// The matrix products of the backward pass with AMX tiles. Included once per SIMD target by backward_task-inl.h.
#if defined(LAMINA_OPS_ATTENTION_CPU_BACKWARD_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_ATTENTION_CPU_BACKWARD_PANELS_INL_H_
#undef LAMINA_OPS_ATTENTION_CPU_BACKWARD_PANELS_INL_H_
#else
#define LAMINA_OPS_ATTENTION_CPU_BACKWARD_PANELS_INL_H_
#endif

#include "lamina/ops/attention/attention_kernel.h"
#include "lamina/ops/attention/cpu/tiled_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

template <class A>
TiledPair* take_pairs(TileScratch<A>& scratch, int64_t side, int64_t numbers) {
  static_assert(sizeof(A) >= sizeof(TiledPair));
  return reinterpret_cast<TiledPair*>(scratch.take(panel_pairs(side, numbers)));
}

/// A tile of keys and values as right operands: kᵀ, vᵀ and the scaled k.
struct KeyPanels {
  TiledPair* kt;
  TiledPair* vt;
  TiledPair* k;

  template <class A>
  void take(TileScratch<A>& scratch, const AttentionSizes& sizes, int64_t tile) {
    kt = take_pairs(scratch, tile, sizes.d_qk);
    vt = take_pairs(scratch, tile, sizes.d_v);
    k = take_pairs(scratch, sizes.d_qk, tile);
  }
};

/// A tile of queries: q and dy as left and as right operands, and memory for the weights or the score gradients.
class QueryPanels {
 public:
  template <class A>
  void take(TileScratch<A>& scratch, const AttentionSizes& sizes, int64_t tile) {
    d_qk_ = sizes.d_qk;
    d_v_ = sizes.d_v;
    q_rows_ = take_pairs(scratch, tile, d_qk_);
    dy_rows_ = take_pairs(scratch, tile, d_v_);
    q_columns_ = take_pairs(scratch, d_qk_, tile);
    dy_columns_ = take_pairs(scratch, d_v_, tile);
    left_ = take_pairs(scratch, tile, tile);
  }

  template <class A>
  void pack(int64_t rows, const A* q, int64_t k_ld, const A* dy, int64_t v_ld) {
    rows_ = rows;
    pack_row_panels<PanelOrder::k_major>(q, k_ld, rows, d_qk_, q_rows_);
    pack_row_panels<PanelOrder::k_major>(dy, v_ld, rows, d_v_, dy_rows_);
    pack_column_panels<PanelOrder::mn_major>(q, k_ld, d_qk_, rows, q_columns_);
    pack_column_panels<PanelOrder::mn_major>(dy, v_ld, d_v_, rows, dy_columns_);
  }

  /// p = q kᵀ and ds = dy vᵀ, with row stride `ld`.
  template <class A>
  void multiply_rows(TileUnit unit, const KeyPanels& keys, int64_t n, A* p, A* ds, int64_t ld) {
    multiply_panels(unit, rows_, n, d_qk_, q_rows_, keys.kt, A{0}, p, ld);
    multiply_panels(unit, rows_, n, d_v_, dy_rows_, keys.vt, A{0}, ds, ld);
  }

  /// dv += pᵀ dy for `n` keys.
  template <class A>
  void add_to_values(TileUnit unit, int64_t n, const A* p, int64_t ld, A* dv, int64_t v_ld) {
    pack_row_panels<PanelOrder::mn_major>(p, ld, n, rows_, left_);
    multiply_panels(unit, n, d_v_, rows_, left_, dy_columns_, A{1}, dv, v_ld);
  }

  /// dk += dsᵀ q for `n` keys.
  template <class A>
  void add_to_keys(TileUnit unit, int64_t n, const A* ds, int64_t ld, A* dk, int64_t k_ld) {
    pack_row_panels<PanelOrder::mn_major>(ds, ld, n, rows_, left_);
    multiply_panels(unit, n, d_qk_, rows_, left_, q_columns_, A{1}, dk, k_ld);
  }

  /// dq = ds k + beta · dq.
  template <class A>
  void multiply_keys(TileUnit unit, const KeyPanels& keys, int64_t n, const A* ds, int64_t ld, A beta, A* dq,
                     int64_t k_ld) {
    pack_row_panels<PanelOrder::k_major>(ds, ld, rows_, n, left_);
    multiply_panels(unit, rows_, d_qk_, n, left_, keys.k, beta, dq, k_ld);
  }

 private:
  int64_t d_qk_ = 0;
  int64_t d_v_ = 0;
  int64_t rows_ = 0;
  TiledPair* q_rows_ = nullptr;
  TiledPair* dy_rows_ = nullptr;
  TiledPair* q_columns_ = nullptr;
  TiledPair* dy_columns_ = nullptr;
  TiledPair* left_ = nullptr;
};

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
