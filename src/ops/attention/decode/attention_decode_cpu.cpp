// Flash decoding on the CPU. The KV cache of each batch row and KV head is split into chunks of a fixed number of keys,
// one task each. A chunk yields maximum, sum of weights and weighted sum of values per query; the chunks are combined
// in order. Within a chunk, keys pass through the L1 cache in tiles: in place if dtype and width allow, else converted.
// Up to kDotRows queries use dot products row by row; more use a matrix product with Qᵀ. The scales of 8-bit caches
// multiply scores and weights. In a paged cache no tile crosses a page. Few queries are limited by memory bandwidth, so
// a tile's values are prefetched while its keys are multiplied, and the next keys while its values are summed.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/attention/decode/attention_decode_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "lamina/ops/attention/attention_bias.h"
#include "lamina/ops/attention/attention_decode_kernel.h"
#include "lamina/ops/attention/attention_kernel.h"
#include "lamina/ops/attention/cpu/score_tile-inl.h"
#include "lamina/ops/attention/decode/lane_sums-inl.h"
#include "lamina/ops/kernel_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

constexpr int64_t kChunk = 512;
constexpr int64_t kDecodeTile = 64;
constexpr int64_t kDotRows = 16;
constexpr int64_t kConvertingRows = 8;  // up to this many queries, keys are converted on every use instead of stored
constexpr int kValueSums = HWY_TARGET <= HWY_AVX3 ? 16 : 8;  // vectors of weighted values that are held in registers

/// State shared by the chunks of a call, and their partial results.
struct DecodeShared {
  AttentionSizes sizes;  // seq_k is the largest length
  int64_t capacity;      // keys per batch row, or tokens of a page
  int64_t tile;          // keys per tile
  int64_t rows;          // queries per KV head: group · seq_q; those of one head are adjacent
  int64_t chunks;        // chunks of the longest row
  DistanceBias bias;
  Tensor partial;  // [batch · n_kv_heads · chunks, rows, d_v + 2]: Σ weight · v, max score, Σ weight
};

template <class T>
class DecodeTask {
  using A = Accumulate<T>;
  using D = hn::ScalableTag<A>;
  using V = hn::Vec<D>;
  static constexpr bool kScaled = std::is_same_v<T, uint8_t>;

 public:
  DecodeTask(const AttentionDecode& args, const DecodeShared& shared)
      : args_(args), shared_(shared), sizes_(shared.sizes), rows_(shared.rows), v_stride_(args.v_cache.dim(3)) {
    take();
    scratch_.allocate(args.q.device());
    take();
  }

  void run(int64_t task) {
    kv_head_ = task / shared_.chunks % sizes_.n_kv_heads;
    b_ = task / shared_.chunks / sizes_.n_kv_heads;
    length_ = args_.lengths.data<int64_t>()[b_];
    const AttentionMask mask(args_.options, sizes_.seq_q, length_);
    const int64_t begin = task % shared_.chunks * kChunk;
    const int64_t end = std::min(begin + kChunk, length_);
    if (begin < end) prefetch_keys(begin, std::min(shared_.tile, end - begin));
    start();
    for (int64_t k0 = begin; k0 < end; k0 += shared_.tile) {
      const int64_t k1 = std::min(k0 + shared_.tile, end);
      next_keys_ = k1 < end ? k1 : k0;
      const auto coverage = mask.coverage(0, sizes_.seq_q, k0, k1);
      if (coverage == AttentionMask::Coverage::none) continue;
      add_keys(mask, k0, k1 - k0, coverage == AttentionMask::Coverage::partial);
    }
    finish(shared_.partial.data<A>() + task * rows_ * (sizes_.d_v + 2));
  }

 private:
  void take() {
    const int64_t lanes = lanes_of<A>();
    const int64_t padded = round_up(rows_, rows_ > kDotRows ? lanes : kRowStep);
    k_ld_ = round_up(sizes_.d_qk, lanes);
    v_ld_ = round_up(sizes_.d_v, lanes);
    q_ld_ = padded;
    q_rows_ = scratch_.take(padded * k_ld_);
    q_ = scratch_.take(k_ld_ * padded);
    k_ = scratch_.take(kDecodeTile * k_ld_);
    v_ = scratch_.take(kDecodeTile * v_ld_);
    st_ = scratch_.take(kDecodeTile * padded);
    s_ = scratch_.take(padded * kDecodeTile);
    o_ = scratch_.take(padded * v_ld_);
    max_ = scratch_.take(padded);
    sum_ = scratch_.take(padded);
    shrink_ = scratch_.take(padded);
    holes_ = scratch_.take(kDecodeTile);
  }

  int64_t head_of(int64_t row) const { return kv_head_ * sizes_.group + row / sizes_.seq_q; }

  void start() {
    const int64_t padded = q_ld_;
    std::fill(q_rows_, q_rows_ + padded * k_ld_, A{0});
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t row = (b_ * sizes_.seq_q + r % sizes_.seq_q) * sizes_.n_heads + head_of(r);
      load_rows<A>(args_.q.data<A>() + row * sizes_.d_qk, sizes_.d_qk, 1, sizes_.d_qk,
                   static_cast<A>(args_.options.scale), q_rows_ + r * k_ld_, k_ld_);
    }
    if (rows_ > kDotRows) transpose_rows(q_rows_, k_ld_, padded, sizes_.d_qk, q_, q_ld_);
    std::fill(s_, s_ + padded * kDecodeTile, A{0});
    std::fill(o_, o_ + padded * v_ld_, A{0});
    std::fill(max_, max_ + padded, A(-1e30));
    std::fill(sum_, sum_ + padded, A{0});
    std::fill(shrink_, shrink_ + padded, A{1});
  }

  /// Index in the cache of the row that has key k0: within its batch row or, in a paged cache, within its page.
  int64_t index_of(int64_t k0) const {
    if (!args_.tables.defined()) return (b_ * sizes_.n_kv_heads + kv_head_) * shared_.capacity + k0;
    const int64_t page = args_.tables.template data<int32_t>()[b_ * args_.tables.strides()[0] + k0 / shared_.capacity];
    return (page * sizes_.n_kv_heads + kv_head_) * shared_.capacity + k0 % shared_.capacity;
  }
  const T* rows_of(const Tensor& cache, int64_t k0) const { return cache.data<T>() + index_of(k0) * cache.dim(3); }

  /// True if `keys` rows of a cache can be used in place, because neither dimension needs padding.
  static bool usable(int64_t keys, int64_t width, int64_t ld) { return width == ld && keys % kRowStep == 0; }

  /// Rows of a cache in the accumulation type with row stride `ld`: in place if possible, else converted to `buffer`.
  const A* tile_of(const T* from, int64_t stride, int64_t keys, int64_t width, A* buffer, int64_t ld) const {
    if constexpr (std::is_same_v<T, A>) {
      if (stride == width && usable(keys, width, ld)) return from;
    }
    load_rows<T>(from, stride, keys, width, A{1}, buffer, ld);
    return buffer;
  }

  void add_keys(const AttentionMask& mask, int64_t k0, int64_t keys, bool partial) {
    const T* v = rows_of(args_.v_cache, k0);
    score(rows_of(args_.k_cache, k0), keys, v);
    if constexpr (kScaled) multiply(args_.scales.k, k0, keys);
    for (int64_t r = 0; r < rows_; ++r) {
      adjust_scores(mask, r, k0, keys, partial);
      softmax(r, keys);
    }
    if constexpr (kScaled) multiply(args_.scales.v, k0, keys);
    if (rows_ <= kConvertingRows && sizes_.d_v == v_ld_) {
      add_values(v, keys, rows_of(args_.k_cache, next_keys_));
      return;
    }
    tile_gemm<A>({.m = rows_,
                  .n = v_ld_,
                  .depth = keys,
                  .a = s_,
                  .a_row = kDecodeTile,
                  .a_depth = 1,
                  .b = tile_of(v, v_stride_, keys, sizes_.d_v, v_, v_ld_),
                  .ldb = v_ld_,
                  .c = o_,
                  .ldc = v_ld_,
                  .row_factors = shrink_});
  }

  /// o_ = shrink_ · o_ + s_ · v for few queries, reading the values in place. Prefetches the keys at `ahead`.
  void add_values(const T* v, int64_t keys, const T* ahead) {
    int64_t r = 0;
    for (; r + 4 <= rows_; r += 4) add_values_of<4>(v, keys, r, r == 0 ? ahead : nullptr);
    for (; r + 2 <= rows_; r += 2) add_values_of<2>(v, keys, r, r == 0 ? ahead : nullptr);
    for (; r < rows_; ++r) add_values_of<1>(v, keys, r, r == 0 ? ahead : nullptr);
  }

  template <int kQueries>
  void add_values_of(const T* v, int64_t keys, int64_t r, const T* ahead) {
    constexpr int kMost = std::min(8, kValueSums / kQueries);
    for (int64_t column = 0; column < v_ld_;) {
      const int64_t vectors = std::min<int64_t>(kMost, (v_ld_ - column) / lanes_of<A>());
      column += add_value_columns<kQueries, kMost>(vectors, v + column, keys, r, column, column == 0 ? ahead : nullptr);
    }
  }

  /// Adds up to `vectors` vectors of columns of the values, for kQueries queries from r on. Returns how many columns.
  template <int kQueries, int kVectors>
  int64_t add_value_columns(int64_t vectors, const T* v, int64_t keys, int64_t r, int64_t column, const T* ahead) {
    if constexpr (kVectors > 1) {
      if (vectors < kVectors) return add_value_columns<kQueries, kVectors / 2>(vectors, v, keys, r, column, ahead);
    }
    const D d;
    const int64_t lanes = lanes_of<A>();
    const A* s = s_ + r * kDecodeTile;
    V sums[kQueries][kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
      for (int l = 0; l < kVectors; ++l) sums[i][l] = hn::Zero(d);
    }
    for (int64_t key = 0; key < keys; ++key) {
      if (ahead != nullptr) prefetch_row(ahead + key * sizes_.d_qk, sizes_.d_qk);
      V value[kVectors];
#pragma GCC unroll 8
      for (int l = 0; l < kVectors; ++l) value[l] = load(d, v + key * v_stride_ + l * lanes);
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) {
        const V weight = hn::Set(d, s[i * kDecodeTile + key]);
#pragma GCC unroll 8
        for (int l = 0; l < kVectors; ++l) sums[i][l] = hn::MulAdd(weight, value[l], sums[i][l]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
      const V factor = hn::Set(d, shrink_[r + i]);
      A* o = o_ + (r + i) * v_ld_ + column;
#pragma GCC unroll 8
      for (int l = 0; l < kVectors; ++l) {
        hn::StoreU(hn::MulAdd(hn::LoadU(d, o + l * lanes), factor, sums[i][l]), d, o + l * lanes);
      }
    }
    return kVectors * lanes;
  }

  void prefetch_keys(int64_t k0, int64_t keys) const {
    const T* k = rows_of(args_.k_cache, k0);
    for (int64_t key = 0; key < keys; ++key) prefetch_row(k + key * sizes_.d_qk, sizes_.d_qk);
  }

  static HWY_INLINE void prefetch_row(const T* row, int64_t width) {
    constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
    for (int64_t c = 0; c < width; c += kLine) __builtin_prefetch(row + c, 0, 2);  // into L2: a tile may not fit L1
  }

  /// Multiplies the column of s_ that belongs to each key, from k0 on, by the key's scale.
  void multiply(const Tensor& scales, int64_t k0, int64_t keys) {
    const D d;
    const A* factors = scales.data<A>() + index_of(k0);
    for (int64_t r = 0; r < rows_; ++r) {
      A* s = s_ + r * kDecodeTile;
      for_vectors(d, keys, [&](int64_t i, size_t n) HWY_ATTR {
        store_n(d, hn::Mul(load_n(d, s + i, n), load_n(d, factors + i, n)), s + i, n);
      });
    }
  }

  /// s_ = q kᵀ. Prefetches `v`, the values of these keys.
  void score(const T* from, int64_t keys, const T* v) {
    if (rows_ <= kConvertingRows && usable(keys, sizes_.d_qk, k_ld_)) {
      dot_all(from, keys, v);
      return;
    }
    const A* k = tile_of(from, sizes_.d_qk, keys, sizes_.d_qk, k_, k_ld_);
    if (rows_ <= kDotRows) {
      dot_all(k, keys, v);
      return;
    }
    tile_gemm<A>({.m = keys,
                  .n = q_ld_,
                  .depth = sizes_.d_qk,
                  .a = k,
                  .a_row = k_ld_,
                  .a_depth = 1,
                  .b = q_,
                  .ldb = q_ld_,
                  .c = st_,
                  .ldc = q_ld_});
    transpose_rows(st_, q_ld_, round_up(keys, kRowStep), q_ld_, s_, kDecodeTile);
  }

  template <class K>
  void dot_all(const K* k, int64_t keys, const T* v) {
    int64_t r = 0;
    for (; r + 4 <= rows_; r += 4) dot_rows<4>(k, keys, r, r == 0 ? v : nullptr);
    for (; r + 2 <= rows_; r += 2) dot_rows<2>(k, keys, r, r == 0 ? v : nullptr);
    for (; r < rows_; ++r) dot_rows<1>(k, keys, r, r == 0 ? v : nullptr);
  }

  /// Scores of kQueries queries from r on, with four keys at a time, so that each loaded vector is used several times.
  /// Keys are read up to a multiple of four. Prefetches the values at `ahead`, if given.
  template <int kQueries, class K>
  void dot_rows(const K* k, int64_t keys, int64_t r, const T* ahead) const {
    const D d;
    const int64_t ld = k_ld_;
    const A* q = q_rows_ + r * k_ld_;
    A* out = s_ + r * kDecodeTile;
    for (int64_t j = 0; j < keys; j += 4) {
      for (int64_t l = j; ahead != nullptr && l < std::min(j + 4, keys); ++l) {
        prefetch_row(ahead + l * v_stride_, sizes_.d_v);
      }
      V sums[kQueries][4];
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
        for (int l = 0; l < 4; ++l) sums[i][l] = hn::Zero(d);
      }
      const K* row = k + j * ld;
      for (int64_t c = 0; c < ld; c += lanes_of<A>()) {
        V key[4];
#pragma GCC unroll 4
        for (int l = 0; l < 4; ++l) key[l] = load(d, row + l * ld + c);
#pragma GCC unroll 4
        for (int i = 0; i < kQueries; ++i) {
          const V query = hn::LoadU(d, q + i * ld + c);
#pragma GCC unroll 4
          for (int l = 0; l < 4; ++l) sums[i][l] = hn::MulAdd(query, key[l], sums[i][l]);
        }
      }
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) store_four_sums(d, sums[i], out + i * kDecodeTile + j);
    }
  }

  /// Applies soft cap, bias and mask. Columns past the last key of the tile are masked, too.
  void adjust_scores(const AttentionMask& mask, int64_t r, int64_t k0, int64_t keys, bool partial) {
    const D d;
    const int64_t query = r % sizes_.seq_q;
    const A cap = static_cast<A>(args_.options.soft_cap);
    const bool biased = shared_.bias.by_key.defined();
    if (!partial && cap == 0 && !biased && keys % lanes_of<A>() == 0) return;
    const A* bias = biased ? shared_.bias.template keys<A>(head_of(r), query, k0 + sizes_.seq_k - length_) : nullptr;
    const bool holes = partial && !mask.is_contiguous_range();
    if (holes) mask.fill_keys(query, k0, keys, holes_);
    const auto seen = mask.keys(query);
    A* s = s_ + r * kDecodeTile;
    for (int64_t c = 0; c < kDecodeTile; c += lanes_of<A>()) {
      V v = hn::LoadU(d, s + c);
      if (cap > 0) v = hn::Mul(hn::Set(d, cap), tanh_of(d, hn::Mul(v, hn::Set(d, 1 / cap))));
      if (biased) v = hn::Add(v, hn::LoadU(d, bias + c));
      auto keep = lanes_between(d, seen.begin - k0 - c, std::min(seen.end - k0, keys) - c);
      if (holes) keep = hn::AndNot(hn::Lt(hn::LoadU(d, holes_ + c), hn::Zero(d)), keep);
      hn::StoreU(hn::IfThenElse(keep, v, hn::Set(d, -std::numeric_limits<A>::infinity())), d, s + c);
    }
  }

  void softmax(int64_t r, int64_t keys) {
    const D d;
    A* s = s_ + r * kDecodeTile;
    V most = hn::Set(d, max_[r]);
    for (int64_t c = 0; c < keys; c += lanes_of<A>()) most = hn::Max(most, hn::LoadU(d, s + c));
    most = hn::MaxOfLanes(d, most);
    V sum = hn::Zero(d);
    for (int64_t c = 0; c < keys; c += lanes_of<A>()) {
      const V p = exp_flushed(d, hn::Sub(hn::LoadU(d, s + c), most));
      sum = hn::Add(sum, p);
      hn::StoreU(p, d, s + c);
    }
    const A row_max = hn::GetLane(most);
    shrink_[r] = std::exp(max_[r] - row_max);
    sum_[r] = sum_[r] * shrink_[r] + hn::GetLane(hn::SumOfLanes(d, sum));
    max_[r] = row_max;
  }

  void finish(A* to) const {
    for (int64_t r = 0; r < rows_; ++r) {
      std::copy(o_ + r * v_ld_, o_ + r * v_ld_ + sizes_.d_v, to);
      to += sizes_.d_v;
      *to++ = max_[r];
      *to++ = sum_[r];
    }
  }

  const AttentionDecode& args_;
  const DecodeShared& shared_;
  const AttentionSizes& sizes_;
  const int64_t rows_;
  const int64_t v_stride_;  // stride between the values of adjacent keys
  TileScratch<A> scratch_;
  int64_t b_ = 0;
  int64_t kv_head_ = 0;
  int64_t length_ = 0;
  int64_t next_keys_ = 0;  // first key of the next tile
  int64_t k_ld_ = 0;
  int64_t v_ld_ = 0;
  int64_t q_ld_ = 0;
  A* q_rows_ = nullptr;  // [rows, d_qk]: queries, scaled
  A* q_ = nullptr;       // [d_qk, rows]: the same, transposed
  A* k_ = nullptr;       // [kDecodeTile, d_qk]: converted keys
  A* v_ = nullptr;       // [kDecodeTile, d_v]: converted values
  A* st_ = nullptr;      // [kDecodeTile, rows]: scores, transposed
  A* s_ = nullptr;       // [rows, kDecodeTile]: scores, then weights
  A* o_ = nullptr;       // [rows, d_v]: weighted sums of values
  A* max_ = nullptr;
  A* sum_ = nullptr;
  A* shrink_ = nullptr;
  A* holes_ = nullptr;
};

/// Combines the partial results of the chunks of one batch row and KV head, in order, and writes y.
template <class A>
void combine(const AttentionDecode& args, const DecodeShared& shared, int64_t unit) {
  const AttentionSizes& sizes = shared.sizes;
  const int64_t width = sizes.d_v + 2;
  const A lowest = A(-1e30);
  for (int64_t r = 0; r < shared.rows; ++r) {
    const int64_t head = unit % sizes.n_kv_heads * sizes.group + r / sizes.seq_q;
    const int64_t row = (unit / sizes.n_kv_heads * sizes.seq_q + r % sizes.seq_q) * sizes.n_heads + head;
    A* y = args.y.data<A>() + row * sizes.d_v;
    std::fill(y, y + sizes.d_v, A{0});
    const A sink = args.extras.sinks.defined() ? args.extras.sinks.data<A>()[head] : lowest;
    const auto part = [&](int64_t chunk) {
      return shared.partial.data<A>() + ((unit * shared.chunks + chunk) * shared.rows + r) * width;
    };
    A row_max = std::max(sink, lowest);
    for (int64_t chunk = 0; chunk < shared.chunks; ++chunk) row_max = std::max(row_max, part(chunk)[sizes.d_v]);
    A sum = sink > lowest ? std::exp(sink - row_max) : A{0};
    for (int64_t chunk = 0; chunk < shared.chunks; ++chunk) {
      const A* from = part(chunk);
      const A weight = std::exp(from[sizes.d_v] - row_max);
      sum += weight * from[sizes.d_v + 1];
      for (int64_t c = 0; c < sizes.d_v; ++c) y[c] += weight * from[c];
    }
    for (int64_t c = 0; sum != 0 && c < sizes.d_v; ++c) y[c] /= sum;
  }
}

template <class T>
void decode(const AttentionDecode& args) {
  using A = Accumulate<T>;
  const Device& device = args.q.device();
  int64_t longest = 0;
  for (int64_t b = 0; b < args.lengths.numel(); ++b) longest = std::max(longest, args.lengths.data<int64_t>()[b]);
  DecodeShared shared;
  const int64_t n_kv_heads = args.k_cache.dim(1);
  const int64_t group = n_kv_heads == 0 ? 0 : args.q.dim(2) / n_kv_heads;
  shared.sizes = {args.q.dim(0), args.q.dim(1), longest,       args.q.dim(2),
                  n_kv_heads,    group,         args.q.dim(3), args.y.dim(3)};
  shared.capacity = args.k_cache.dim(2);
  shared.tile = args.tables.defined() ? std::min(kDecodeTile, shared.capacity) : kDecodeTile;
  shared.rows = group * args.q.dim(1);
  shared.chunks = (longest + kChunk - 1) / kChunk;
  shared.bias = distance_bias(args.options, args.extras, args.q.dim(2), args.q.dim(1), longest);
  const int64_t units = shared.rows == 0 ? 0 : shared.sizes.batch * n_kv_heads;
  shared.partial = Tensor::empty({units * shared.chunks, shared.rows, shared.sizes.d_v + 2}, dtype_of<A>(), device);
  device.threads().tasks(units * shared.chunks, [&](int64_t task) {
    DecodeTask<T>(args, shared).run(task);
    if (shared.chunks == 1) combine<A>(args, shared, task);
  });
  if (shared.chunks != 1) device.threads().tasks(units, [&](int64_t unit) { combine<A>(args, shared, unit); });
}

void attention_decode(const AttentionDecode& args) {
  if (args.k_cache.dtype() == DType::u8) return decode<uint8_t>(args);
  visit_floating(args.k_cache.dtype(), [&](auto tag) { decode<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(attention_decode);
namespace cpu {
void attention_decode(const AttentionDecode& args) {
  require_kernel(args.q.device(), "attention_decode", "cpu");
  HWY_DYNAMIC_DISPATCH(attention_decode)(args);
}
}  // namespace cpu
}  // namespace lamina::ops
#endif
