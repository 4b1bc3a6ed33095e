// One task is a block of keys of one key head against all queries of all heads that share it: Kᵀ, Vᵀ are made once,
// dk and dv stay in the task's own memory, and five products per tile are all there is to compute. dq receives from
// many tasks: they take turns, in the order of the key blocks, so that its bits do not depend on the number of threads
// and no second buffer is needed. Tasks start in that order too, hence whoever waits, waits for a running task; and
// since each walks the queries from front to back they follow each other at a distance of one tile.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/attention/attention_backward_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <atomic>
#include <cmath>

#include "lamina/ops/attention/attention_bias.h"
#include "lamina/ops/attention/attention_kernel.h"
#include "lamina/ops/attention/attention_tile-inl.h"
#include "lamina/ops/attention/attention_turns.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

constexpr int64_t kBackwardTile = 64;  // queries and keys
constexpr int64_t kRowPanel = 8;       // queries whose reach is looked at together

/// What all tasks of one backward pass share.
template <class A>
struct BackwardShared {
  AttentionSizes sizes;
  AttentionMask mask;
  DistanceBias bias;
  AttentionTurns turns;
  Tensor dq;     // [batch, seq_q, n_heads, d_qk] in the accumulation type
  Tensor delta;  // [batch, n_heads, seq_q]: Σ_d dy · y
  Tensor dt5;    // [tasks, group, buckets], or undefined
  int64_t key_blocks;
};

template <class T>
class BackwardTask {
  using A = Accumulate<T>;
  using D = hn::ScalableTag<A>;
  using V = hn::Vec<D>;

 public:
  BackwardTask(const AttentionBackward& args, BackwardShared<A>& shared)
      : args_(args), in_(args.forward), shared_(shared), sizes_(shared.sizes), dropout_(in_.options) {
    take();
    scratch_.allocate(in_.q.device());
    take();
  }

  void run(int64_t task) {
    block_ = task % shared_.key_blocks;
    kv_head_ = task / shared_.key_blocks % sizes_.n_kv_heads;
    b_ = task / shared_.key_blocks / sizes_.n_kv_heads;
    k0_ = block_ * kBackwardTile;
    keys_ = std::min(kBackwardTile, sizes_.seq_k - k0_);
    load_keys();
    const int64_t first = shared_.mask.queries(k0_).begin;
    const int64_t last = shared_.mask.queries(k0_ + keys_ - 1).end;
    for (int64_t h = 0; h < sizes_.group; ++h) {
      head_ = kv_head_ * sizes_.group + h;
      dt5_ = shared_.dt5.defined() ? shared_.dt5.template data<A>() + (task * sizes_.group + h) * buckets() : nullptr;
      if (dt5_ != nullptr) std::fill(dt5_, dt5_ + buckets(), A{0});
      for (int64_t q0 = std::max<int64_t>(first, 0) / kBackwardTile * kBackwardTile; q0 < last; q0 += kBackwardTile) {
        const int64_t q1 = std::min(q0 + kBackwardTile, sizes_.seq_q);
        const auto coverage = shared_.mask.coverage(q0, q1, k0_, k0_ + keys_);
        if (coverage == AttentionMask::Coverage::none) continue;
        add_queries(q0, q1 - q0, coverage == AttentionMask::Coverage::partial);
      }
    }
    store_rows(dk_, k_ld_, sizes_.d_qk, args_.dk);
    store_rows(dv_, v_ld_, sizes_.d_v, args_.dv);
  }

 private:
  int64_t buckets() const { return in_.extras.t5_bias.dim(0); }

  void take() {
    const int64_t lanes = lanes_of<A>();
    k_ld_ = round_up(sizes_.d_qk, lanes);
    v_ld_ = round_up(sizes_.d_v, lanes);
    k_ = scratch_.take(kBackwardTile * k_ld_);
    v_ = scratch_.take(kBackwardTile * v_ld_);
    kt_ = scratch_.take(k_ld_ * kBackwardTile);
    vt_ = scratch_.take(v_ld_ * kBackwardTile);
    dk_ = scratch_.take(kBackwardTile * k_ld_);
    dv_ = scratch_.take(kBackwardTile * v_ld_);
    q_ = scratch_.take(kBackwardTile * k_ld_);
    dy_ = scratch_.take(kBackwardTile * v_ld_);
    dq_ = scratch_.take(kBackwardTile * k_ld_);
    p_ = scratch_.take(kBackwardTile * kBackwardTile);
    ds_ = scratch_.take(kBackwardTile * kBackwardTile);
    holes_ = scratch_.take(kBackwardTile);
    diagonals_ = scratch_.take(3 * kBackwardTile);
  }

  void load_keys() {
    const int64_t row = b_ * sizes_.seq_k + k0_;
    const int64_t k_stride = sizes_.n_kv_heads * sizes_.d_qk;
    const int64_t v_stride = sizes_.n_kv_heads * sizes_.d_v;
    const T* k = in_.k.data<T>() + row * k_stride + kv_head_ * sizes_.d_qk;
    const T* v = in_.v.data<T>() + row * v_stride + kv_head_ * sizes_.d_v;
    load_rows<T>(v, v_stride, keys_, sizes_.d_v, A{1}, v_, v_ld_);
    load_rows<T>(k, k_stride, keys_, sizes_.d_qk, A{1}, k_, k_ld_);
    std::fill(kt_, kt_ + k_ld_ * kBackwardTile, A{0});
    std::fill(vt_, vt_ + v_ld_ * kBackwardTile, A{0});
    transpose_rows(k_, k_ld_, keys_, sizes_.d_qk, kt_, kBackwardTile);
    transpose_rows(v_, v_ld_, keys_, sizes_.d_v, vt_, kBackwardTile);
    load_rows<T>(k, k_stride, keys_, sizes_.d_qk, static_cast<A>(in_.options.scale), k_, k_ld_);
    std::fill(dk_, dk_ + kBackwardTile * k_ld_, A{0});
    std::fill(dv_, dv_ + kBackwardTile * v_ld_, A{0});
  }

  void add_queries(int64_t q0, int64_t rows, bool partial) {
    const int64_t row = b_ * sizes_.seq_q + q0;
    const int64_t q_stride = sizes_.n_heads * sizes_.d_qk;
    const int64_t y_stride = sizes_.n_heads * sizes_.d_v;
    load_rows<T>(in_.q.data<T>() + row * q_stride + head_ * sizes_.d_qk, q_stride, rows, sizes_.d_qk,
                 static_cast<A>(in_.options.scale), q_, k_ld_);
    load_rows<T>(args_.dy.data<T>() + row * y_stride + head_ * sizes_.d_v, y_stride, rows, sizes_.d_v, A{1}, dy_,
                 v_ld_);
    std::fill(diagonals_, diagonals_ + 3 * kBackwardTile, A{0});
    multiply_rows(q0, rows, partial);
    const bool plain = !partial && keys_ == kBackwardTile && in_.options.soft_cap == 0 &&
                       !shared_.bias.by_key.defined() && !dropout_.active();
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t index = (b_ * sizes_.n_heads + head_) * sizes_.seq_q + q0 + r;
      const Row line{in_.greatest.data<A>()[index], in_.inverse.data<A>()[index],
                     shared_.delta.template data<A>()[index], p_ + r * kBackwardTile, ds_ + r * kBackwardTile};
      if (plain) {
        plain_row(line);
      } else {
        general_row(line, q0 + r, r, reach_[r / kRowPanel]);
      }
    }
    add_to_keys(rows, partial);
    if (dt5_ != nullptr) add_to_buckets(q0, rows);
    add_to_queries(q0, rows, partial);
  }

  /// Columns of the tile, in whole vectors, that `n` queries from `query` on can reach.
  AttentionMask::Range reach(int64_t query, int64_t n) const {
    const int64_t lanes = lanes_of<A>();
    const int64_t begin = std::max<int64_t>(shared_.mask.keys(query).begin - k0_, 0) / lanes * lanes;
    const int64_t end = round_up(std::clamp<int64_t>(shared_.mask.keys(query + n - 1).end - k0_, 0, keys_), lanes);
    return {std::min(begin, end), end};
  }

  /// p = q kᵀ and ds = dy vᵀ, a few queries at a time where they do not reach all keys; zeros beyond their reach.
  void multiply_rows(int64_t q0, int64_t rows, bool partial) {
    for (int64_t at = 0; at < rows; at += kRowPanel) {
      const AttentionMask::Range columns = reach(q0 + at, std::min(kRowPanel, rows - at));
      reach_[at / kRowPanel] = columns;
      for (int64_t r = at; partial && r < std::min(at + kRowPanel, rows); ++r) {
        for (A* row : {p_ + r * kBackwardTile, ds_ + r * kBackwardTile}) {
          std::fill(row, row + columns.begin, A{0});
          std::fill(row + columns.end, row + kBackwardTile, A{0});
        }
      }
    }
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
                      .ldb = kBackwardTile,
                      .c = c + at * kBackwardTile + begin,
                      .ldc = kBackwardTile});
      }
    };
    multiply(q_, sizes_.d_qk, k_ld_, kt_, p_);
    multiply(dy_, sizes_.d_v, v_ld_, vt_, ds_);
  }

  /// One query of a tile. In: p the scores, ds = dy·v. Out: the weights and the scores' gradients.
  struct Row {
    A greatest;
    A inverse;
    A delta;
    A* p;
    A* ds;
  };

  void plain_row(const Row& row) {
    const D d;
    const auto greatest = hn::Set(d, row.greatest);
    const auto inverse = hn::Set(d, row.inverse);
    const auto delta = hn::Set(d, row.delta);
    for (int64_t c = 0; c < kBackwardTile; c += lanes_of<A>()) {
      const V weight = hn::Mul(exp_flushed(d, hn::Sub(hn::LoadU(d, row.p + c), greatest)), inverse);
      hn::StoreU(weight, d, row.p + c);
      hn::StoreU(hn::Mul(weight, hn::Sub(hn::LoadU(d, row.ds + c), delta)), d, row.ds + c);
    }
  }

  /// `r` is the query's row in the tile.
  void general_row(const Row& row, int64_t query, int64_t r, AttentionMask::Range columns) {
    const D d;
    const A cap = static_cast<A>(in_.options.soft_cap);
    const bool holes = !shared_.mask.ranges_suffice();
    const auto seen = shared_.mask.keys(query);
    if (holes) shared_.mask.fill_keys(query, k0_, keys_, holes_);
    const bool biased = shared_.bias.by_key.defined();
    const A* bias = biased ? shared_.bias.template keys<A>(head_, query, k0_) : nullptr;
    const auto index = static_cast<uint64_t>((b_ * sizes_.n_heads + head_) * sizes_.seq_q + query);
    const auto element = index * static_cast<uint64_t>(sizes_.seq_k) + static_cast<uint64_t>(k0_);
    A* diagonal = diagonals_ + kBackwardTile - r;
    for (int64_t c = columns.begin; c < columns.end; c += lanes_of<A>()) {
      V s = hn::LoadU(d, row.p + c);
      V slope = hn::Set(d, A{1});
      if (cap > 0) {
        const V t = tanh_of(d, hn::Mul(s, hn::Set(d, 1 / cap)));
        s = hn::Mul(t, hn::Set(d, cap));
        slope = hn::NegMulAdd(t, t, slope);
      }
      if (biased) s = hn::Add(s, hn::LoadU(d, bias + c));
      auto keep = lanes_between(d, seen.begin - k0_ - c, std::min(seen.end - k0_, keys_) - c);
      if (holes) keep = hn::AndNot(hn::Lt(hn::LoadU(d, holes_ + c), hn::Zero(d)), keep);
      const V power = exp_flushed(d, hn::Sub(s, hn::Set(d, row.greatest)));
      const V weight = hn::IfThenElseZero(keep, hn::Mul(power, hn::Set(d, row.inverse)));
      V dp = hn::LoadU(d, row.ds + c);
      V dropped = weight;
      if (dropout_.active()) {
        const V factors = dropout_.factors(d, element + static_cast<uint64_t>(c), 1);
        dp = hn::Mul(dp, factors);
        dropped = hn::Mul(weight, factors);
      }
      const V grad = hn::Mul(weight, hn::Sub(dp, hn::Set(d, row.delta)));
      if (dt5_ != nullptr) hn::StoreU(hn::Add(hn::LoadU(d, diagonal + c), grad), d, diagonal + c);
      hn::StoreU(dropped, d, row.p + c);
      hn::StoreU(hn::Mul(grad, slope), d, row.ds + c);
    }
  }

  /// dv += pᵀ dy and dk += dsᵀ q, for a few keys at a time over the queries that reach them.
  void add_to_keys(int64_t rows, bool partial) {
    const int64_t step = partial ? kRowPanel : keys_;
    for (int64_t key = 0; key < keys_; key += step) {
      const int64_t n = std::min(step, keys_ - key);
      int64_t begin = rows;
      int64_t end = 0;
      for (int64_t at = 0; at < rows; at += kRowPanel) {
        const AttentionMask::Range columns = reach_[at / kRowPanel];
        if (columns.begin >= key + n || columns.end <= key) continue;
        begin = std::min(begin, at);
        end = std::min(rows, at + kRowPanel);
      }
      if (begin >= end) continue;
      TileProduct<A> product{.m = n,
                             .n = v_ld_,
                             .depth = end - begin,
                             .a = p_ + begin * kBackwardTile + key,
                             .a_row = 1,
                             .a_depth = kBackwardTile,
                             .b = dy_ + begin * v_ld_,
                             .ldb = v_ld_,
                             .c = dv_ + key * v_ld_,
                             .ldc = v_ld_,
                             .factor = 1};
      tile_gemm(product);
      product.n = k_ld_;
      product.a = ds_ + begin * kBackwardTile + key;
      product.b = q_ + begin * k_ld_;
      product.ldb = k_ld_;
      product.c = dk_ + key * k_ld_;
      product.ldc = k_ld_;
      tile_gemm(product);
    }
  }

  /// dq += ds k, in turn.
  void add_to_queries(int64_t q0, int64_t rows, bool partial) {
    const int64_t step = partial ? kRowPanel : rows;
    for (int64_t at = 0; at < rows; at += step) {
      const AttentionMask::Range columns = reach_[at / kRowPanel];
      tile_gemm<A>({.m = std::min(step, rows - at),
                    .n = k_ld_,
                    .depth = std::max<int64_t>(std::min(columns.end, keys_) - columns.begin, 0),
                    .a = ds_ + at * kBackwardTile + columns.begin,
                    .a_row = kBackwardTile,
                    .a_depth = 1,
                    .b = k_ + columns.begin * k_ld_,
                    .ldb = k_ld_,
                    .c = dq_ + at * k_ld_,
                    .ldc = k_ld_});
    }
    const D d;
    const int64_t stride = sizes_.n_heads * sizes_.d_qk;
    A* to = shared_.dq.template data<A>() + (b_ * sizes_.seq_q + q0) * stride + head_ * sizes_.d_qk;
    const int64_t slot = b_ * sizes_.n_heads + head_;
    shared_.turns.wait(slot, q0 / kBackwardTile, block_);
    for (int64_t r = 0; r < rows; ++r) {
      for_vectors(d, sizes_.d_qk, [&](int64_t c, size_t n) HWY_ATTR {
        A* at = to + r * stride + c;
        store_n(d, hn::Add(load_n(d, at, n), hn::LoadU(d, dq_ + r * k_ld_ + c)), at, n);
      });
    }
    shared_.turns.pass(slot, q0 / kBackwardTile, block_);
  }

  void add_to_buckets(int64_t q0, int64_t rows) {
    const int64_t offset = sizes_.seq_k - sizes_.seq_q;
    for (int64_t n = -(rows - 1); n < keys_; ++n) {  // column − row of the tile
      const int64_t bucket =
          t5_bucket(k0_ - q0 - offset + n, !in_.options.causal, buckets(), in_.options.t5_max_distance);
      dt5_[bucket] += diagonals_[kBackwardTile + n];
    }
  }

  void store_rows(const A* from, int64_t ld, int64_t width, const Tensor& to) {
    const D d;
    const int64_t stride = sizes_.n_kv_heads * width;
    T* out = to.data<T>() + (b_ * sizes_.seq_k + k0_) * stride + kv_head_ * width;
    for (int64_t r = 0; r < keys_; ++r) {
      for_vectors(d, width, [&](int64_t c, size_t n) HWY_ATTR {
        store_n(d, hn::LoadU(d, from + r * ld + c), out + r * stride + c, n);
      });
    }
  }

  const AttentionBackward& args_;
  const AttentionForward& in_;
  BackwardShared<A>& shared_;
  const AttentionSizes& sizes_;
  const Dropout<A> dropout_;
  TileScratch<A> scratch_;
  int64_t b_ = 0;
  int64_t kv_head_ = 0;
  int64_t head_ = 0;
  int64_t block_ = 0;
  int64_t k0_ = 0;
  int64_t keys_ = 0;
  int64_t k_ld_ = 0;
  int64_t v_ld_ = 0;
  A* k_ = nullptr;   // [keys, d_qk], scaled
  A* v_ = nullptr;   // [keys, d_v]
  A* kt_ = nullptr;  // [d_qk, keys]
  A* vt_ = nullptr;  // [d_v, keys]
  A* dk_ = nullptr;
  A* dv_ = nullptr;
  A* q_ = nullptr;   // [queries, d_qk], scaled
  A* dy_ = nullptr;  // [queries, d_v]
  A* dq_ = nullptr;
  A* p_ = nullptr;   // [queries, keys]: scores, then weights as they met v
  A* ds_ = nullptr;  // [queries, keys]: dy·v, then the gradient of q·k
  A* holes_ = nullptr;
  A* diagonals_ = nullptr;  // Σ of the scores' gradients by column − row + kBackwardTile
  A* dt5_ = nullptr;        // [buckets] of this task and head
  AttentionMask::Range reach_[kBackwardTile / kRowPanel] = {};
};

/// delta = Σ_d dy · y per query and head, and each head's sink gradient per range of queries.
template <class T, class A = Accumulate<T>>
void dot_outputs(const AttentionBackward& args, const AttentionSizes& sizes, const Tensor& delta) {
  constexpr int64_t kGrain = 64;
  const int64_t rows = sizes.batch * sizes.seq_q;
  const int64_t ranges = (rows + kGrain - 1) / kGrain;
  const bool sinks = args.dsinks.defined();
  std::vector<A> partial(sinks ? static_cast<size_t>(ranges * sizes.n_heads) : 0, A{0});
  args.dy.device().threads().ranges(rows, kGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
    const ComputeTag<T> d;
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t head = 0; head < sizes.n_heads; ++head) {
        const int64_t at = (row * sizes.n_heads + head) * sizes.d_v;
        auto sum = hn::Zero(d);
        for_vectors(d, sizes.d_v, [&](int64_t i, size_t n) HWY_ATTR {
          sum = hn::MulAdd(load_n(d, args.dy.data<T>() + at + i, n), load_n(d, args.forward.y.data<T>() + at + i, n),
                           sum);
        });
        const int64_t index = (row / sizes.seq_q * sizes.n_heads + head) * sizes.seq_q + row % sizes.seq_q;
        const A dot = hn::GetLane(hn::SumOfLanes(d, sum));
        delta.data<A>()[index] = dot;
        if (!sinks) continue;
        const A sink = args.forward.extras.sinks.data<A>()[head];
        const A weight =
            std::exp(sink - args.forward.greatest.data<A>()[index]) * args.forward.inverse.data<A>()[index];
        partial[static_cast<size_t>(begin / kGrain * sizes.n_heads + head)] -= weight * dot;
      }
    }
  });
  if (!sinks) return;
  A* dsinks = args.dsinks.data<A>();
  std::fill(dsinks, dsinks + sizes.n_heads, A{0});
  for (size_t i = 0; i < partial.size(); ++i) dsinks[i % static_cast<size_t>(sizes.n_heads)] += partial[i];
}

/// Adds the buckets of all tasks, in order.
template <class A>
void sum_buckets(const BackwardShared<A>& shared, int64_t tasks, const Tensor& dt5) {
  const int64_t buckets = dt5.dim(0);
  const int64_t group = shared.sizes.group;
  A* to = dt5.data<A>();
  std::fill(to, to + dt5.numel(), A{0});
  const A* from = tasks > 0 ? shared.dt5.template data<A>() : nullptr;
  for (int64_t task = 0; task < tasks; ++task) {
    const int64_t kv_head = task / shared.key_blocks % shared.sizes.n_kv_heads;
    for (int64_t h = 0; h < group; ++h) {
      for (int64_t bucket = 0; bucket < buckets; ++bucket) {
        to[bucket * shared.sizes.n_heads + kv_head * group + h] += *from++;
      }
    }
  }
}

template <class T>
void backward(const AttentionBackward& args) {
  using A = Accumulate<T>;
  const AttentionForward& in = args.forward;
  const Device& device = in.q.device();
  const AttentionSizes sizes = attention_sizes(in);
  const AttentionMask mask = attention_mask(in);
  const int64_t key_blocks = (sizes.seq_k + kBackwardTile - 1) / kBackwardTile;
  const int64_t tasks = sizes.batch * sizes.n_kv_heads * key_blocks;
  BackwardShared<A> shared{sizes,
                           mask,
                           distance_bias(in.options, in.extras, sizes.n_heads, sizes.seq_q, sizes.seq_k),
                           AttentionTurns(mask, sizes, kBackwardTile),
                           std::is_same_v<T, A> ? args.dq : Tensor::empty(args.dq.shape(), dtype_of<A>(), device),
                           Tensor::empty(in.greatest.shape(), dtype_of<A>(), device),
                           Tensor(),
                           key_blocks};
  if (args.dt5_bias.defined()) {
    shared.dt5 = Tensor::empty({tasks, sizes.group, args.dt5_bias.dim(0)}, dtype_of<A>(), device);
  }
  dot_outputs<T>(args, sizes, shared.delta);
  shared.dq.fill_(0.0);
  std::atomic<int64_t> next{0};
  device.threads().tasks(tasks, [&](int64_t /*any*/) { BackwardTask<T>(args, shared).run(next.fetch_add(1)); });
  if (args.dt5_bias.defined()) sum_buckets(shared, tasks, args.dt5_bias);
  if constexpr (!std::is_same_v<T, A>) Tensor(args.dq).copy_(shared.dq);
}

void attention_backward(const AttentionBackward& args) {
  visit_floating(args.forward.q.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(attention_backward);
namespace cpu {
void attention_backward(const AttentionBackward& args) { HWY_DYNAMIC_DISPATCH(attention_backward)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
