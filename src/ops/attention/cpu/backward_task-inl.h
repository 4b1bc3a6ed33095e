// One task of the backward pass, see backward_cpu.cpp. Included once per SIMD target by that file.
#if defined(LAMINA_OPS_ATTENTION_CPU_BACKWARD_TASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_ATTENTION_CPU_BACKWARD_TASK_INL_H_
#undef LAMINA_OPS_ATTENTION_CPU_BACKWARD_TASK_INL_H_
#else
#define LAMINA_OPS_ATTENTION_CPU_BACKWARD_TASK_INL_H_
#endif

#include "lamina/ops/attention/attention_bias.h"
#include "lamina/ops/attention/attention_kernel.h"
#include "lamina/ops/attention/cpu/backward_panels-inl.h"
#include "lamina/ops/attention/cpu/ordered_accumulation.h"
#include "lamina/ops/attention/cpu/score_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

constexpr int64_t kTile = 64;  // number of queries, and of keys, per tile
constexpr int64_t kMostKeyTiles = 4;
constexpr int64_t kRowPanel = 8;  // queries that are processed with the same range of visible keys

/// State shared by all tasks of one backward pass.
template <class A>
struct BackwardShared {
  AttentionSizes sizes;
  AttentionMask mask;
  DistanceBias bias;
  OrderedAccumulation turns;
  int64_t key_tiles;  // number of key tiles per task
  int64_t key_blocks;
  A* dq;                 // [batch, seq_q, n_heads, d_qk]
  const A* delta;        // [batch, n_heads, seq_q]: Σ_d dy · y
  const A* row_max;      // [batch, n_heads, seq_q], from forward
  const A* row_inv_sum;  // [batch, n_heads, seq_q], from forward
  A* dt5;                // [tasks, group, buckets], or null
  int64_t buckets;
};

/// One block of keys of one KV head, with all queries of all heads that share this KV head.
template <class T>
class BackwardTask {
  using A = Accumulate<T>;
  using D = hn::ScalableTag<A>;
  using V = hn::Vec<D>;
  using Range = AttentionMask::Range;
  using Coverage = AttentionMask::Coverage;

 public:
  BackwardTask(const AttentionBackward& args, BackwardShared<A>& shared)
      : args_(args),
        in_(args.forward),
        shared_(shared),
        sizes_(shared.sizes),
        dropout_(in_.options, sizes_.seq_q),
        tiles_(tiles_for<T>(in_.q.device())) {
    take();
    scratch_.allocate(in_.q.device());
    take();
  }

  void run(int64_t task) {
    block_ = task % shared_.key_blocks;
    kv_head_ = task / shared_.key_blocks % sizes_.n_kv_heads;
    b_ = task / shared_.key_blocks / sizes_.n_kv_heads;
    const int64_t begin = block_ * shared_.key_tiles * kTile;
    const int64_t end = std::min(begin + shared_.key_tiles * kTile, sizes_.seq_k);
    std::optional<TileScope> scope;
    if (tiles_) scope.emplace(*tiles_);
    tiles_in_use_ = (end - begin + kTile - 1) / kTile;
    for (int64_t t = 0; t < tiles_in_use_; ++t) load_keys(key_tiles_[t], begin + t * kTile);
    const int64_t first = std::max<int64_t>(shared_.mask.queries(begin).begin, 0) / kTile;
    const int64_t last = (std::min(shared_.mask.queries(end - 1).end, sizes_.seq_q) + kTile - 1) / kTile;
    for (int64_t h = 0; h < sizes_.group; ++h) {
      head_ = kv_head_ * sizes_.group + h;
      if (shared_.dt5 != nullptr) {
        dt5_ = shared_.dt5 + (task * sizes_.group + h) * shared_.buckets;
        std::fill(dt5_, dt5_ + shared_.buckets, A{0});
      }
      for (int64_t tile = last - 1; tile >= first; --tile) {
        const int64_t q0 = tile * kTile;
        const int64_t q1 = std::min(q0 + kTile, sizes_.seq_q);
        if (shared_.mask.coverage(q0, q1, begin, end) != Coverage::none) add_queries(q0, q1 - q0, tile > first);
      }
    }
    for (int64_t t = 0; t < tiles_in_use_; ++t) {
      store_rows(key_tiles_[t], key_tiles_[t].dk, k_ld_, sizes_.d_qk, args_.dk);
      store_rows(key_tiles_[t], key_tiles_[t].dv, v_ld_, sizes_.d_v, args_.dv);
    }
  }

 private:
  struct KeyTile {
    int64_t k0;
    int64_t keys;
    A* k;              // [keys, d_qk], scaled
    A* kt;             // [d_qk, keys]
    A* vt;             // [d_v, keys]
    A* dk;             // [keys, d_qk]
    A* dv;             // [keys, d_v]
    KeyPanels panels;  // used with AMX tiles, instead of kt, vt and k
  };

  void take() {
    const int64_t lanes = lanes_of<A>();
    k_ld_ = round_up(sizes_.d_qk, tiles_ ? kPanelSide : lanes);
    v_ld_ = round_up(sizes_.d_v, tiles_ ? kPanelSide : lanes);
    for (int64_t t = 0; t < shared_.key_tiles; ++t) {
      KeyTile& tile = key_tiles_[t];
      tile.k = scratch_.take(kTile * k_ld_);
      if (tiles_) {
        tile.panels.take(scratch_, sizes_, kTile);
      } else {
        tile.kt = scratch_.take(k_ld_ * kTile);
        tile.vt = scratch_.take(v_ld_ * kTile);
      }
      tile.dk = scratch_.take(kTile * k_ld_);
      tile.dv = scratch_.take(kTile * v_ld_);
    }
    if (tiles_) queries_.take(scratch_, sizes_, kTile);
    q_ = scratch_.take(kTile * k_ld_);
    dy_ = scratch_.take(kTile * v_ld_);
    dq_ = scratch_.take(kTile * k_ld_);
    p_ = scratch_.take(kTile * kTile);
    ds_ = scratch_.take(kTile * kTile);
    holes_ = scratch_.take(kTile);
    factors_ = scratch_.take(kTile);
    diagonals_ = scratch_.take(3 * kTile);
  }

  void load_keys(KeyTile& tile, int64_t k0) {
    tile.k0 = k0;
    tile.keys = std::min(kTile, sizes_.seq_k - k0);
    const int64_t k_stride = in_.k.strides()[1];
    const int64_t v_stride = in_.v.strides()[1];
    const T* k = head_rows<T>(in_.k, b_, k0, kv_head_);
    const T* v = head_rows<T>(in_.v, b_, k0, kv_head_);
    std::fill(tile.dk, tile.dk + kTile * k_ld_, A{0});
    std::fill(tile.dv, tile.dv + kTile * v_ld_, A{0});
    if constexpr (kHasTiles<T>) {
      if (tiles_) {
        pack_column_panels<PanelOrder::k_major>(k, k_stride, tile.keys, sizes_.d_qk, tile.panels.kt);
        pack_column_panels<PanelOrder::k_major>(v, v_stride, tile.keys, sizes_.d_v, tile.panels.vt);
        load_rows<T>(k, k_stride, tile.keys, sizes_.d_qk, static_cast<A>(in_.options.scale), tile.k, k_ld_);
        pack_column_panels<PanelOrder::mn_major>(tile.k, k_ld_, sizes_.d_qk, tile.keys, tile.panels.k);
        return;
      }
    }
    if (tile.keys < kTile) {
      std::fill(tile.kt, tile.kt + k_ld_ * kTile, A{0});
      std::fill(tile.vt, tile.vt + v_ld_ * kTile, A{0});
    }
    load_rows<T>(v, v_stride, tile.keys, sizes_.d_v, A{1}, tile.dv, v_ld_);  // dv serves as a buffer here
    transpose_rows(tile.dv, v_ld_, tile.keys, sizes_.d_v, tile.vt, kTile);
    load_rows<T>(k, k_stride, tile.keys, sizes_.d_qk, A{1}, tile.k, k_ld_);
    transpose_rows(tile.k, k_ld_, tile.keys, sizes_.d_qk, tile.kt, kTile);
    load_rows<A>(tile.k, k_ld_, tile.keys, k_ld_, static_cast<A>(in_.options.scale), tile.k, k_ld_);
    std::fill(tile.dv, tile.dv + kTile * v_ld_, A{0});
  }

  /// Processes one tile of queries. If `more`, the preceding tile of queries is next and is prefetched.
  void add_queries(int64_t q0, int64_t rows, bool more) {
    const int64_t q_stride = in_.q.strides()[1];
    const int64_t y_stride = sizes_.n_heads * sizes_.d_v;
    const T* q = head_rows<T>(in_.q, b_, q0, head_);
    const T* dy = args_.dy.data<T>() + (b_ * sizes_.seq_q + q0) * y_stride + head_ * sizes_.d_v;
    load_rows<T>(q, q_stride, rows, sizes_.d_qk, static_cast<A>(in_.options.scale), q_, k_ld_);
    load_rows<T>(dy, y_stride, rows, sizes_.d_v, A{1}, dy_, v_ld_);
    if constexpr (kHasTiles<T>) {
      if (tiles_) queries_.pack(rows, q_, k_ld_, dy_, v_ld_);
    }
    const int64_t ahead = more ? kTile / tiles_in_use_ : 0;
    bool started = false;
    for (int64_t t = 0; t < tiles_in_use_; ++t) {
      prefetch_rows(q - (kTile - t * ahead) * q_stride, q_stride, ahead, sizes_.d_qk);
      prefetch_rows(dy - (kTile - t * ahead) * y_stride, y_stride, ahead, sizes_.d_v);
      const KeyTile& tile = key_tiles_[t];
      const Coverage coverage = shared_.mask.coverage(q0, q0 + rows, tile.k0, tile.k0 + tile.keys);
      if (coverage == Coverage::none) continue;
      const bool partial = coverage == Coverage::partial;
      multiply_rows(tile, q0, rows, partial);
      find_gradients(tile, q0, rows, partial);
      add_to_keys(tile, rows, partial);
      multiply_keys(tile, rows, partial, started);
      started = true;
    }
    add_to_queries(q0, rows, started);
  }

  /// The columns of the tile, in whole vectors, that at least one of `n` queries from `query` on sees.
  Range reach(const KeyTile& tile, int64_t query, int64_t n) const {
    const int64_t lanes = lanes_of<A>();
    const int64_t begin = std::max<int64_t>(shared_.mask.keys(query).begin - tile.k0, 0) / lanes * lanes;
    const int64_t last = shared_.mask.keys(query + n - 1).end - tile.k0;
    const int64_t end = round_up(std::clamp<int64_t>(last, 0, tile.keys), lanes);
    return {std::min(begin, end), end};
  }

  /// Computes p = q kᵀ and ds = dy vᵀ. If the tile is partly masked, works on a few queries at a time; columns that
  /// these do not see become zero.
  void multiply_rows(const KeyTile& tile, int64_t q0, int64_t rows, bool partial) {
    if constexpr (kHasTiles<T>) {
      if (tiles_) queries_.multiply_rows(*tiles_, tile.panels, tile.keys, p_, ds_, kTile);
    }
    for (int64_t at = 0; at < rows; at += kRowPanel) {
      const Range columns = reach(tile, q0 + at, std::min(kRowPanel, rows - at));
      reach_[at / kRowPanel] = columns;
      for (int64_t r = at; partial && r < std::min(at + kRowPanel, rows); ++r) {
        for (A* row : {p_ + r * kTile, ds_ + r * kTile}) {
          std::fill(row, row + columns.begin, A{0});
          std::fill(row + columns.end, row + kTile, A{0});
        }
      }
    }
    if (tiles_) return;
    const int64_t step = partial ? kRowPanel : rows;
    const auto multiply = [&](const A* a, int64_t depth, int64_t lda, const A* b, A* c) {
      for (int64_t at = 0; at < rows; at += step) {
        const auto [begin, end] = reach_[at / kRowPanel];
        if (begin == end) continue;
        tile_gemm<A>({.m = std::min(step, rows - at),
                      .n = end - begin,
                      .depth = depth,
                      .a = a + at * lda,
                      .a_row = lda,
                      .a_depth = 1,
                      .b = b + begin,
                      .ldb = kTile,
                      .c = c + at * kTile + begin,
                      .ldc = kTile});
      }
    };
    multiply(q_, sizes_.d_qk, k_ld_, tile.kt, p_);
    multiply(dy_, sizes_.d_v, v_ld_, tile.vt, ds_);
  }

  /// One query row of a tile. Input: p holds the scores and ds = dy·v. Output: p holds the weights and ds the gradients
  /// of the scores.
  struct Row {
    A row_max;
    A row_inv_sum;
    A delta;
    A* p;
    A* ds;
  };

  void find_gradients(const KeyTile& tile, int64_t q0, int64_t rows, bool partial) {
    const bool plain = !partial && tile.keys == kTile && in_.options.soft_cap == 0 && !shared_.bias.by_key.defined() &&
                       !dropout_.active();
    const int64_t index = (b_ * sizes_.n_heads + head_) * sizes_.seq_q + q0;
    if (dt5_ != nullptr) std::fill(diagonals_, diagonals_ + 3 * kTile, A{0});
    for (int64_t r = 0; r < rows; ++r) {
      const Row row{shared_.row_max[index + r], shared_.row_inv_sum[index + r], shared_.delta[index + r],
                    p_ + r * kTile, ds_ + r * kTile};
      if (plain) {
        plain_row(row);
      } else {
        general_row(tile, row, q0 + r, r, reach_[r / kRowPanel]);
      }
    }
    if (dt5_ != nullptr) add_to_buckets(tile, q0, rows);
  }

  void plain_row(const Row& row) {
    const D d;
    const auto row_max = hn::Set(d, row.row_max);
    const auto row_inv_sum = hn::Set(d, row.row_inv_sum);
    const auto delta = hn::Set(d, row.delta);
    for (int64_t c = 0; c < kTile; c += lanes_of<A>()) {
      const V weight = hn::Mul(exp_nonpositive(d, hn::Sub(hn::LoadU(d, row.p + c), row_max)), row_inv_sum);
      hn::StoreU(weight, d, row.p + c);
      hn::StoreU(hn::Mul(weight, hn::Sub(hn::LoadU(d, row.ds + c), delta)), d, row.ds + c);
    }
  }

  /// Computes a Row for any mask, bias, soft cap and dropout. `r` is the row of the query in the tile.
  void general_row(const KeyTile& tile, const Row& row, int64_t query, int64_t r, Range columns) {
    const D d;
    const A cap = static_cast<A>(in_.options.soft_cap);
    const bool holes = !shared_.mask.is_contiguous_range();
    const auto seen = shared_.mask.keys(query);
    if (holes) shared_.mask.fill_keys(query, tile.k0, tile.keys, holes_);
    const bool biased = shared_.bias.by_key.defined();
    const A* bias = biased ? shared_.bias.template keys<A>(head_, query, tile.k0) : nullptr;
    if (dropout_.active()) dropout_.fill(b_ * sizes_.n_heads + head_, query, tile.k0, tile.keys, factors_);
    A* diagonal = diagonals_ + kTile - r;
    for (int64_t c = columns.begin; c < columns.end; c += lanes_of<A>()) {
      V s = hn::LoadU(d, row.p + c);
      V slope = hn::Set(d, A{1});
      if (cap > 0) {
        const V t = tanh_of(d, hn::Mul(s, hn::Set(d, 1 / cap)));
        s = hn::Mul(t, hn::Set(d, cap));
        slope = hn::NegMulAdd(t, t, slope);
      }
      if (biased) s = hn::Add(s, hn::LoadU(d, bias + c));
      auto keep = lanes_between(d, seen.begin - tile.k0 - c, std::min(seen.end - tile.k0, tile.keys) - c);
      if (holes) keep = hn::AndNot(hn::Lt(hn::LoadU(d, holes_ + c), hn::Zero(d)), keep);
      const V power = exp_flushed(d, hn::Sub(s, hn::Set(d, row.row_max)));
      const V weight = hn::IfThenElseZero(keep, hn::Mul(power, hn::Set(d, row.row_inv_sum)));
      V dp = hn::LoadU(d, row.ds + c);
      V dropped = weight;
      if (dropout_.active()) {
        const V factors = hn::LoadU(d, factors_ + c);
        dp = hn::Mul(dp, factors);
        dropped = hn::Mul(weight, factors);
      }
      const V grad = hn::Mul(weight, hn::Sub(dp, hn::Set(d, row.delta)));
      if (dt5_ != nullptr) hn::StoreU(hn::Add(hn::LoadU(d, diagonal + c), grad), d, diagonal + c);
      hn::StoreU(dropped, d, row.p + c);
      hn::StoreU(hn::Mul(grad, slope), d, row.ds + c);
    }
  }

  /// dv += pᵀ dy and dk += dsᵀ q. If the tile is partly masked, works on a few keys at a time, over the queries that
  /// see them.
  void add_to_keys(const KeyTile& tile, int64_t rows, bool partial) {
    if constexpr (kHasTiles<T>) {
      if (tiles_) {
        queries_.add_to_values(*tiles_, tile.keys, p_, kTile, tile.dv, v_ld_);
        queries_.add_to_keys(*tiles_, tile.keys, ds_, kTile, tile.dk, k_ld_);
        return;
      }
    }
    const int64_t step = partial ? kRowPanel : tile.keys;
    for (int64_t key = 0; key < tile.keys; key += step) {
      const int64_t n = std::min(step, tile.keys - key);
      int64_t begin = rows;
      int64_t end = 0;
      for (int64_t at = 0; at < rows; at += kRowPanel) {
        const Range columns = reach_[at / kRowPanel];
        if (columns.begin >= key + n || columns.end <= key) continue;
        begin = std::min(begin, at);
        end = std::min(rows, at + kRowPanel);
      }
      if (begin >= end) continue;
      TileProduct<A> product{.m = n,
                             .n = v_ld_,
                             .depth = end - begin,
                             .a = p_ + begin * kTile + key,
                             .a_row = 1,
                             .a_depth = kTile,
                             .b = dy_ + begin * v_ld_,
                             .ldb = v_ld_,
                             .c = tile.dv + key * v_ld_,
                             .ldc = v_ld_,
                             .factor = 1};
      tile_gemm(product);
      product.n = k_ld_;
      product.a = ds_ + begin * kTile + key;
      product.b = q_ + begin * k_ld_;
      product.ldb = k_ld_;
      product.c = tile.dk + key * k_ld_;
      product.ldc = k_ld_;
      tile_gemm(product);
    }
  }

  /// dq of this task = ds k, added to if `add`.
  void multiply_keys(const KeyTile& tile, int64_t rows, bool partial, bool add) {
    if constexpr (kHasTiles<T>) {
      if (tiles_) {
        queries_.multiply_keys(*tiles_, tile.panels, tile.keys, ds_, kTile, add ? A{1} : A{0}, dq_, k_ld_);
        return;
      }
    }
    const int64_t step = partial ? kRowPanel : rows;
    for (int64_t at = 0; at < rows; at += step) {
      const auto [begin, end] = reach_[at / kRowPanel];
      tile_gemm<A>({.m = std::min(step, rows - at),
                    .n = k_ld_,
                    .depth = std::max<int64_t>(std::min(end, tile.keys) - begin, 0),
                    .a = ds_ + at * kTile + begin,
                    .a_row = kTile,
                    .a_depth = 1,
                    .b = tile.k + begin * k_ld_,
                    .ldb = k_ld_,
                    .c = dq_ + at * k_ld_,
                    .ldc = k_ld_,
                    .factor = add ? A{1} : A{0}});
    }
  }

  /// Adds the dq of this task to the shared dq. Waits for its turn, so that tasks add in the order of their key blocks.
  void add_to_queries(int64_t q0, int64_t rows, bool any) {
    const D d;
    const int64_t stride = sizes_.n_heads * sizes_.d_qk;
    A* to = shared_.dq + (b_ * sizes_.seq_q + q0) * stride + head_ * sizes_.d_qk;
    const int64_t slot = b_ * sizes_.n_heads + head_;
    shared_.turns.wait(slot, q0 / kTile, block_);
    for (int64_t r = 0; any && r < rows; ++r) {
      for_vectors(d, sizes_.d_qk, [&](int64_t c, size_t n) HWY_ATTR {
        A* at = to + r * stride + c;
        store_n(d, hn::Add(load_n(d, at, n), hn::LoadU(d, dq_ + r * k_ld_ + c)), at, n);
      });
    }
    shared_.turns.pass(slot, q0 / kTile, block_);
  }

  void add_to_buckets(const KeyTile& tile, int64_t q0, int64_t rows) {
    const int64_t offset = sizes_.seq_k - sizes_.seq_q;
    for (int64_t n = -(rows - 1); n < tile.keys; ++n) {  // column − row in the tile
      const int64_t distance = tile.k0 - q0 - offset + n;
      dt5_[t5_bucket(distance, !in_.options.causal, shared_.buckets, in_.options.t5_max_distance)] +=
          diagonals_[kTile + n];
    }
  }

  void store_rows(const KeyTile& tile, const A* from, int64_t ld, int64_t width, const Tensor& to) {
    const D d;
    const int64_t stride = sizes_.n_kv_heads * width;
    T* out = to.data<T>() + (b_ * sizes_.seq_k + tile.k0) * stride + kv_head_ * width;
    for (int64_t r = 0; r < tile.keys; ++r) {
      for_vectors(d, width, [&](int64_t c, size_t n) HWY_ATTR {
        store_n(d, hn::LoadU(d, from + r * ld + c), out + r * stride + c, n);
      });
    }
  }

  const AttentionBackward& args_;
  const AttentionForward& in_;
  BackwardShared<A>& shared_;
  const AttentionSizes& sizes_;
  Dropout<A> dropout_;
  std::optional<TileUnit> tiles_;  // if empty, products are computed in A instead of AMX tiles
  TileScratch<A> scratch_;
  int64_t b_ = 0;
  int64_t kv_head_ = 0;
  int64_t head_ = 0;
  int64_t block_ = 0;
  int64_t k_ld_ = 0;
  int64_t v_ld_ = 0;
  KeyTile key_tiles_[kMostKeyTiles] = {};
  int64_t tiles_in_use_ = 0;
  QueryPanels queries_;  // used with AMX tiles
  A* q_ = nullptr;       // [queries, d_qk], scaled
  A* dy_ = nullptr;      // [queries, d_v]
  A* dq_ = nullptr;      // [queries, d_qk]
  A* p_ = nullptr;       // [queries, keys]: scores, then weights after dropout
  A* ds_ = nullptr;      // [queries, keys]: dy·v, then the gradient of q·k
  A* holes_ = nullptr;
  A* factors_ = nullptr;    // dropout factors of one query
  A* diagonals_ = nullptr;  // sums of score gradients, indexed by column − row + kTile
  A* dt5_ = nullptr;        // [buckets] of this task and head, or null
  Range reach_[kTile / kRowPanel] = {};
};

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
