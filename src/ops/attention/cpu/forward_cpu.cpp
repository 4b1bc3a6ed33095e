// A task handles one block of queries of one head and goes through all visible keys, tile by tile. Scores are stored
// transposed, as keys × queries. So Qᵀ is built once per task, keys need no transpose, the softmax runs per SIMD lane
// without horizontal reductions, and P V reads P with strides. A tile is processed in panels of a few vectors of
// queries, so that scores stay in the L1 cache. Each vector processes only the keys that its queries can see.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/attention/cpu/forward_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/ops/attention/attention_bias.h"
#include "lamina/ops/attention/attention_kernel.h"
#include "lamina/ops/attention/cpu/score_tile-inl.h"
#include "lamina/ops/attention/cpu/tiled_product-inl.h"
#include "lamina/ops/kernel_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

constexpr int64_t kQueryBlock = 256;
constexpr int64_t kKeyTile = 64;
constexpr int64_t kPanelVectors = 4;
constexpr int64_t kKeyGroup = 8;  // keys that are processed with the same range of visible queries

template <class T>
class ForwardTask {
  using A = Accumulate<T>;
  using D = hn::ScalableTag<A>;
  using V = hn::Vec<D>;

 public:
  ForwardTask(const AttentionForward& args, const AttentionSizes& sizes, const AttentionMask& mask,
              const DistanceBias& bias)
      : args_(args),
        sizes_(sizes),
        mask_(mask),
        bias_(bias),
        dropout_(args.options, sizes.seq_q),
        tiles_(tiles_for<T>(args.q.device())) {
    take();
    scratch_.allocate(args.q.device());
    take();
  }

  void run(int64_t b, int64_t head, int64_t q0, int64_t q1) {
    b_ = b;
    head_ = head;
    q0_ = q0;
    count_ = q1 - q0;
    std::optional<TileScope> scope;
    if (tiles_) scope.emplace(*tiles_);
    start();
    const int64_t first = mask_.keys(q0).begin;
    const int64_t last = mask_.keys(q1 - 1).end;
    for (int64_t k0 = std::max<int64_t>(first, 0) / kKeyTile * kKeyTile; k0 < last; k0 += kKeyTile) {
      const int64_t k1 = std::min(k0 + kKeyTile, sizes_.seq_k);
      const auto coverage = mask_.coverage(q0, q1, k0, k1);
      if (coverage == AttentionMask::Coverage::none) continue;
      add_keys(k0, k1, coverage == AttentionMask::Coverage::partial);
    }
    finish();
  }

 private:
  void take() {
    const int64_t lanes = lanes_of<A>();
    panel_ = kPanelVectors * lanes;
    k_ld_ = round_up(sizes_.d_qk, tiles_ ? kPanelSide : lanes);
    v_ld_ = round_up(sizes_.d_v, tiles_ ? kPanelSide : lanes);
    q_rows_ = scratch_.take(kQueryBlock * k_ld_);
    if (tiles_) {
      q_panels_ = take_pairs(panel_pairs(kQueryBlock, sizes_.d_qk));
      k_panels_ = take_pairs(panel_pairs(kKeyTile, sizes_.d_qk));
      v_panels_ = take_pairs(panel_pairs(sizes_.d_v, kKeyTile));
      p_panels_ = take_pairs(panel_pairs(panel_, kKeyTile));
    } else {
      q_ = scratch_.take(k_ld_ * kQueryBlock);
      k_ = scratch_.take(kKeyTile * k_ld_);
      v_ = scratch_.take(kKeyTile * v_ld_);
    }
    s_ = scratch_.take(kKeyTile * panel_);
    o_ = scratch_.take(kQueryBlock * v_ld_);
    max_ = scratch_.take(kQueryBlock);
    sum_ = scratch_.take(kQueryBlock);
    shrink_ = scratch_.take(kQueryBlock);
    holes_ = scratch_.take(lanes);
    drawn_ = scratch_.take(lanes * kKeyTile);
    factors_ = scratch_.take(kKeyTile * lanes);
  }

  TiledPair* take_pairs(int64_t count) { return reinterpret_cast<TiledPair*>(scratch_.take(count)); }

  void start() {
    const T* q = head_rows<T>(args_.q, b_, q0_, head_);
    load_rows<T>(q, args_.q.strides()[1], count_, sizes_.d_qk, static_cast<A>(args_.options.scale), q_rows_, k_ld_);
    const int64_t padded = round_up(count_, panel_);
    std::fill(q_rows_ + count_ * k_ld_, q_rows_ + padded * k_ld_, A{0});
    for (int64_t at = 0; at < padded; at += panel_) {
      if constexpr (kHasTiles<T>) {
        if (tiles_) {
          pack_column_panels<PanelOrder::k_major>(q_rows_ + at * k_ld_, k_ld_, panel_, sizes_.d_qk, query_panels(at));
          continue;
        }
      }
      transpose_rows(q_rows_ + at * k_ld_, k_ld_, panel_, sizes_.d_qk, q_ + at * k_ld_, panel_);
    }
    std::fill(o_, o_ + padded * v_ld_, A{0});
    // A sink acts like a key before the first one. Without a sink, the maximum starts below every score, but finite.
    const A lowest = A(-1e30);
    const A sink = args_.extras.sinks.defined() ? args_.extras.sinks.data<A>()[head_] : lowest;
    std::fill(max_, max_ + padded, std::max(sink, lowest));
    std::fill(sum_, sum_ + padded, sink > lowest ? A{1} : A{0});
  }

  void add_keys(int64_t k0, int64_t k1, bool partial) {
    const int64_t kv_head = head_ / sizes_.group;
    const int64_t k_stride = args_.k.strides()[1];
    const int64_t v_stride = args_.v.strides()[1];
    const T* k = head_rows<T>(args_.k, b_, k0, kv_head);
    const T* v = head_rows<T>(args_.v, b_, k0, kv_head);
    load_keys(k, v, k1 - k0);
    const int64_t ahead = std::min(kKeyTile, sizes_.seq_k - k1) * panel_ / round_up(count_, panel_);
    for (int64_t at = 0; at < count_; at += panel_) {
      const int64_t first = q0_ + at;
      const int64_t next = kKeyTile + at / panel_ * ahead;
      prefetch_rows(k + next * k_stride, k_stride, ahead, sizes_.d_qk);
      prefetch_rows(v + next * v_stride, v_stride, ahead, sizes_.d_v);
      const auto coverage = partial ? mask_.coverage(first, std::min(first + panel_, q0_ + count_), k0, k1)
                                    : AttentionMask::Coverage::full;
      if (coverage == AttentionMask::Coverage::none) continue;
      add_panel(at, k0, k1, coverage == AttentionMask::Coverage::partial);
    }
  }

  void load_keys(const T* k, const T* v, int64_t keys) {
    const int64_t k_stride = args_.k.strides()[1];
    const int64_t v_stride = args_.v.strides()[1];
    if constexpr (kHasTiles<T>) {
      if (tiles_) {
        pack_row_panels<PanelOrder::k_major>(k, k_stride, keys, sizes_.d_qk, k_panels_);
        pack_column_panels<PanelOrder::mn_major>(v, v_stride, sizes_.d_v, keys, v_panels_);
        return;
      }
    }
    load_rows<T>(k, k_stride, keys, sizes_.d_qk, A{1}, k_, k_ld_);
    load_rows<T>(v, v_stride, keys, sizes_.d_v, A{1}, v_, v_ld_);
  }

  /// The packed queries from `at` on; `at` is a multiple of panel_.
  TiledPair* query_panels(int64_t at) const { return q_panels_ + at * panel_depth(sizes_.d_qk); }

  /// The keys in [k0, k1) that at least one of the queries first … last sees.
  AttentionMask::Range reach(int64_t first, int64_t last, int64_t k0, int64_t k1) const {
    const int64_t begin = std::max(k0, mask_.keys(q0_ + first).begin);
    const int64_t end = std::min(k1, mask_.keys(q0_ + last).end);
    return {begin - k0, std::max(begin, end) - k0};
  }

  /// Processes keys [k0, k1) for the panel of queries from `at` on.
  void add_panel(int64_t at, int64_t k0, int64_t k1, bool partial) {
    const int64_t lanes = lanes_of<A>();
    AttentionMask::Range reach_of[kPanelVectors] = {};
    const int64_t vectors = (std::min(panel_, count_ - at) + lanes - 1) / lanes;
    for (int64_t v = 0; v < vectors; ++v) {
      const int64_t first = at + v * lanes;
      reach_of[v] = reach(first, std::min(first + lanes, count_) - 1, k0, k1);
    }
    score(at, k1 - k0, reach_of, vectors, partial);
    const bool adjust = partial || args_.options.soft_cap > 0 || bias_.by_query.defined();
    for (int64_t v = 0; v < vectors; ++v) {
      const auto [begin, end] = reach_of[v];
      if (begin >= end) continue;
      const Column column{s_ + begin * panel_ + v * lanes, at + v * lanes, k0 + begin, end - begin};
      if (adjust) adjust_scores(column, partial);
      if (partial) {
        softmax(column, [](D d, V x) HWY_ATTR { return exp_flushed(d, x); });
      } else {
        softmax(column, [](D d, V x) HWY_ATTR { return exp_nonpositive(d, x); });
      }
      if (dropout_.active()) drop(column);
      if (tiles_) continue;
      tile_gemm<A>({.m = std::min(lanes, count_ - column.query),
                    .n = v_ld_,
                    .depth = column.keys,
                    .a = column.s,
                    .a_row = 1,
                    .a_depth = panel_,
                    .b = v_ + begin * v_ld_,
                    .ldb = v_ld_,
                    .c = o_ + column.query * v_ld_,
                    .ldc = v_ld_,
                    .row_factors = shrink_ + column.query});
    }
    if constexpr (kHasTiles<T>) {
      if (tiles_) add_weighted_values(at, k1 - k0, reach_of, vectors);
    }
  }

  /// o_ = shrink_ · o_ + p v for a panel of queries, with AMX tiles. Weights of keys that a query does not see are
  /// zero.
  void add_weighted_values(int64_t at, int64_t keys, const AttentionMask::Range* reach_of, int64_t vectors) {
    const D d;
    const int64_t lanes = lanes_of<A>();
    for (int64_t v = 0; v < vectors; ++v) {
      const auto [begin, end] = reach_of[v];
      for (int64_t key = 0; key < keys; ++key) {
        if (key < begin || key >= end) hn::StoreU(hn::Zero(d), d, s_ + key * panel_ + v * lanes);
      }
      for (int64_t i = at + v * lanes; begin < end && i < at + (v + 1) * lanes; ++i) {
        const auto factor = hn::Set(d, shrink_[i]);
        for (int64_t c = 0; c < v_ld_; c += lanes) {
          A* o = o_ + i * v_ld_ + c;
          hn::StoreU(hn::Mul(hn::LoadU(d, o), factor), d, o);
        }
      }
    }
    pack_row_panels<PanelOrder::mn_major>(s_, panel_, vectors * lanes, keys, p_panels_);
    multiply_panels(*tiles_, vectors * lanes, sizes_.d_v, keys, p_panels_, v_panels_, A{1}, o_ + at * v_ld_, v_ld_);
  }

  /// s_ = k qᵀ. If partly masked, works on a few keys at a time, with the queries that see them.
  void score(int64_t at, int64_t keys, const AttentionMask::Range* reach_of, int64_t vectors, bool partial) {
    const int64_t lanes = lanes_of<A>();
    if constexpr (kHasTiles<T>) {
      if (tiles_) {
        return multiply_panels(*tiles_, keys, vectors * lanes, sizes_.d_qk, k_panels_, query_panels(at), A{0}, s_,
                               panel_);
      }
    }
    const int64_t step = partial ? kKeyGroup : keys;
    for (int64_t key = 0; key < keys; key += step) {
      const int64_t count = std::min(step, keys - key);
      int64_t first = 0;
      int64_t last = vectors;
      while (first < last && !(reach_of[first].begin < key + count && reach_of[first].end > key)) ++first;
      while (first < last && !(reach_of[last - 1].begin < key + count && reach_of[last - 1].end > key)) --last;
      if (first == last) continue;
      tile_gemm<A>({.m = count,
                    .n = (last - first) * lanes,
                    .depth = sizes_.d_qk,
                    .a = k_ + key * k_ld_,
                    .a_row = k_ld_,
                    .a_depth = 1,
                    .b = q_ + at * k_ld_ + first * lanes,
                    .ldb = panel_,
                    .c = s_ + key * panel_ + first * lanes,
                    .ldc = panel_});
    }
  }

  /// One vector of queries with its visible keys. The scores of consecutive keys are panel_ elements apart.
  struct Column {
    A* s;
    int64_t query;  // first query, relative to q0_
    int64_t key;    // first key
    int64_t keys;
  };

  /// Applies soft cap, bias and mask to the scores.
  void adjust_scores(const Column& column, bool partial) {
    const D d;
    const int64_t first = q0_ + column.query;
    const A cap = static_cast<A>(args_.options.soft_cap);
    const auto never = hn::Set(d, -std::numeric_limits<A>::infinity());
    const bool biased = bias_.by_query.defined();
    const bool holes = partial && !mask_.is_contiguous_range();
    // The keys that all queries of this vector see.
    const int64_t last = std::min(column.query + lanes_of<A>(), count_) - 1;
    const int64_t open_begin = holes ? 0 : mask_.keys(q0_ + last).begin - column.key;
    const int64_t open_end = holes ? 0 : mask_.keys(first).end - column.key;
    for (int64_t i = 0; i < column.keys; ++i) {
      const int64_t key = column.key + i;
      const bool masked = partial && (i < open_begin || i >= open_end);
      if (!masked && cap == 0 && !biased) {
        i = std::max(i, open_end - 1);
        continue;
      }
      V s = hn::LoadU(d, column.s + i * panel_);
      if (cap > 0) s = hn::Mul(hn::Set(d, cap), tanh_of(d, hn::Mul(s, hn::Set(d, 1 / cap))));
      if (biased) s = hn::Add(s, hn::LoadU(d, bias_.template queries<A>(head_, first, key)));
      if (masked) {
        const auto seen = mask_.queries(key);
        s = hn::IfThenElse(lanes_between(d, seen.begin - first, seen.end - first), s, never);
      }
      if (holes) {
        mask_.fill_queries(key, first, std::min(lanes_of<A>(), count_ - column.query), holes_);
        s = hn::IfThenElse(hn::Lt(hn::LoadU(d, holes_), hn::Zero(d)), never, s);
      }
      hn::StoreU(s, d, column.s + i * panel_);
    }
  }

  /// Replaces scores by exp(score − maximum). `shrink_` becomes the factor that rescales the sums of earlier tiles.
  template <class Exp>
  HWY_INLINE void softmax(const Column& column, const Exp& exp) {
    const D d;
    const V before = hn::LoadU(d, max_ + column.query);
    V most = before;
    V other = before;
    int64_t key = 0;
    for (; key + 2 <= column.keys; key += 2) {
      most = hn::Max(most, hn::LoadU(d, column.s + key * panel_));
      other = hn::Max(other, hn::LoadU(d, column.s + (key + 1) * panel_));
    }
    if (key < column.keys) most = hn::Max(most, hn::LoadU(d, column.s + key * panel_));
    most = hn::Max(most, other);
    const V shrink = exp(d, hn::Sub(before, most));
    V sum = hn::Mul(hn::LoadU(d, sum_ + column.query), shrink);
    for (key = 0; key < column.keys; ++key) {
      const V p = exp(d, hn::Sub(hn::LoadU(d, column.s + key * panel_), most));
      sum = hn::Add(sum, p);
      hn::StoreU(p, d, column.s + key * panel_);
    }
    hn::StoreU(most, d, max_ + column.query);
    hn::StoreU(sum, d, sum_ + column.query);
    hn::StoreU(shrink, d, shrink_ + column.query);
  }

  /// Applies dropout to the weights. Factors are generated per query and then transposed.
  void drop(const Column& column) {
    const D d;
    const int64_t lanes = lanes_of<A>();
    const int64_t head = b_ * sizes_.n_heads + head_;
    for (int64_t i = 0; i < lanes; ++i) {
      dropout_.fill(head, q0_ + column.query + i, column.key, column.keys, drawn_ + i * kKeyTile);
    }
    transpose_rows(drawn_, kKeyTile, lanes, column.keys, factors_, lanes);
    for (int64_t key = 0; key < column.keys; ++key) {
      A* at = column.s + key * panel_;
      hn::StoreU(hn::Mul(hn::LoadU(d, at), hn::LoadU(d, factors_ + key * lanes)), d, at);
    }
  }

  void finish() {
    const D d;
    const int64_t stride = sizes_.n_heads * sizes_.d_v;
    T* y = args_.y.data<T>() + (b_ * sizes_.seq_q + q0_) * stride + head_ * sizes_.d_v;
    const int64_t index = (b_ * sizes_.n_heads + head_) * sizes_.seq_q + q0_;
    std::copy(max_, max_ + count_, args_.row_max.data<A>() + index);
    A* inverses = args_.row_inv_sum.data<A>() + index;
    for (int64_t i = 0; i < count_; ++i) {
      const A row_inv_sum = sum_[i] != 0 ? 1 / sum_[i] : A{0};
      inverses[i] = row_inv_sum;
      const auto factor = hn::Set(d, row_inv_sum);
      for_vectors(d, sizes_.d_v, [&](int64_t c, size_t n) HWY_ATTR {
        store_n(d, hn::Mul(hn::LoadU(d, o_ + i * v_ld_ + c), factor), y + i * stride + c, n);
      });
    }
  }

  const AttentionForward& args_;
  const AttentionSizes& sizes_;
  const AttentionMask& mask_;
  const DistanceBias& bias_;
  Dropout<A> dropout_;
  std::optional<TileUnit> tiles_;  // if empty, products are computed in A instead of AMX tiles
  TileScratch<A> scratch_;
  int64_t b_ = 0;
  int64_t head_ = 0;
  int64_t q0_ = 0;     // first query
  int64_t count_ = 0;  // number of queries
  int64_t panel_ = 0;  // queries per panel
  int64_t k_ld_ = 0;
  int64_t v_ld_ = 0;
  A* q_rows_ = nullptr;            // [kQueryBlock, d_qk], scaled
  A* q_ = nullptr;                 // [panels, d_qk, panel], its transpose
  A* k_ = nullptr;                 // [kKeyTile, d_qk]
  A* v_ = nullptr;                 // [kKeyTile, d_v]
  TiledPair* q_panels_ = nullptr;  // with AMX tiles: packed Q, K, V and weights
  TiledPair* k_panels_ = nullptr;
  TiledPair* v_panels_ = nullptr;
  TiledPair* p_panels_ = nullptr;
  A* s_ = nullptr;    // [kKeyTile, panel]: scores, then weights
  A* o_ = nullptr;    // [kQueryBlock, d_v]: Σ weight · v so far
  A* max_ = nullptr;  // per query: running maximum
  A* sum_ = nullptr;  // per query: running Σ exp(score − max)
  A* shrink_ = nullptr;
  A* holes_ = nullptr;
  A* drawn_ = nullptr;    // [lanes, kKeyTile]: dropout factors
  A* factors_ = nullptr;  // [kKeyTile, lanes], their transpose
};

template <class T>
void forward(const AttentionForward& args) {
  const AttentionSizes sizes = attention_sizes(args);
  const AttentionMask mask = attention_mask(args);
  const DistanceBias bias = distance_bias(args.options, args.extras, sizes.n_heads, sizes.seq_q, sizes.seq_k);
  // If there are few tasks, they are split in two, so that many threads end at about the same time.
  const int64_t slots = sizes.batch * sizes.n_heads;
  const int64_t step = slots * ((sizes.seq_q + kQueryBlock - 1) / kQueryBlock) < 256 ? kQueryBlock / 2 : kQueryBlock;
  const int64_t blocks = (sizes.seq_q + step - 1) / step;
  args.q.device().threads().tasks(slots * blocks, [&](int64_t task) {
    // Longest first: with a causal mask the last queries see the most keys.
    const int64_t q0 = (blocks - 1 - task / slots) * step;
    const int64_t slot = task % slots;
    ForwardTask<T>(args, sizes, mask, bias)
        .run(slot / sizes.n_heads, slot % sizes.n_heads, q0, std::min(sizes.seq_q, q0 + step));
  });
}

void attention_forward(const AttentionForward& args) {
  visit_floating(args.q.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(attention_forward);
namespace cpu {
void attention_forward(const AttentionForward& args) {
  require_kernel(args.q.device(), "attention_forward", "cpu");
  HWY_DYNAMIC_DISPATCH(attention_forward)(args);
}
}  // namespace cpu
}  // namespace lamina::ops
#endif
