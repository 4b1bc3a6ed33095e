#pragma once

// Decoding of one row, with one new token, over pages: all SMs read one long KV cache. The caches of a KV head are
// divided evenly among `splits` blocks, one block per SM in all, and the last block of a KV head to finish merges them
// in order. The general kernel (paged_decode_item.cuh) divides rows of any lengths, which takes registers and shared
// memory that a product's kernel needs; this one fits beside the kernel for products of one row
// (linear/fused/row_stream_cuda.cu). So it is resident, and its first tiles are on their way, while the QKV projection
// still runs, and the output projection prefetches its weights while this kernel runs. Tiles that do not fit the ring
// are not prefetched into L2: on the H200, that slowed the products more than it gained.

#include "lamina/ops/attention/paged/paged_decode_heads.cuh"
#include "lamina/ops/attention/paged/paged_decode_tile.cuh"
#include "lamina/tensor/cuda/prefetch.cuh"

namespace lamina::ops::cuda::paged {

/// A block of a launch with p.places splits per KV head. At most eight query heads per KV head.
template <class C, class M, int kD, int kParts, int kWarps = kD == 64 ? 8 : 4>
class RowBlock {
  using State = WarpState<C, M, kD, kParts, 1>;
  using Tile = PageTile<C, kD>;
  static constexpr bool kBytes = State::kBytes;
  static constexpr int kScaleBytes = kBytes ? 2 * kTileKeys * 4 : 0;
  static constexpr int kStageBytes = 2 * Tile::kBytes + kScaleBytes;
  static constexpr int kPitch = kD + 4;  // floats per row of merged values; avoids bank conflicts

 public:
  static constexpr int kHeads = 8;  // most query heads per KV head
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kStages = kBytes ? 6 : 3;
  /// Registers that a product of one row leaves per thread (row_stream.cuh: 512 threads of 80 registers).
  static constexpr int kRegisters = 24576 / kThreads;

 private:
  static constexpr int kRing = kWarps * kStages * kStageBytes;
  static constexpr int kCopies = kRing / 4 * 3;  // bytes of the ring for parts that are merged
  static constexpr int kItemsEach = (kHeads * kD / 4 + kThreads - 1) / kThreads;
  static_assert(kStages > 1 && kWarps * kHeads * kPitch * 4 <= kRing, "the merge reuses the ring");
  struct Fixed {  // shared memory after the ring
    NewToken<C, kD> token;
    M queries[kParts * kHeads * State::kPitch];
    float2 stats[kWarps][kHeads];
    int last;
  };

 public:
  static constexpr int kMostSplits = (kRing - kCopies) / (kHeads * static_cast<int>(sizeof(float)));
  static constexpr size_t kSharedBytes = kRing + sizeof(Fixed);

  __device__ RowBlock(const Params& p, unsigned char* memory)
      : p_(p), ring_(memory), fixed_(*reinterpret_cast<Fixed*>(memory + kRing)) {}

  __device__ void run() {
    if (!p_.settled) lamina::cuda::grid_dependency_wait();
    lamina::cuda::trigger_dependents();
    const int64_t position = given_position(p_, 0);
    work_ = RowWork(p_, 0, kHeads);
    if (thread_ == 0 && blockIdx.x == 0) work_.report_fault(p_);
    const int tiles = work_.tiles;
    first_ = work_.begin / kTileKeys + static_cast<int>(int64_t{tiles} * split_ / p_.places);
    end_ = work_.begin / kTileKeys + static_cast<int>(int64_t{tiles} * (split_ + 1) / p_.places);
    find_pages(first_);
#pragma unroll 1  // small code is fetched sooner
    for (int n = 0; n < kStages; ++n) load_tile(n, first_ + warp_ + n * kWarps);
    if (p_.settled) lamina::cuda::grid_dependency_wait();
    const bool stores = p_.step && split_ == p_.places - 1 && work_.length > 0;
    prepare_heads(checked_position(p_, position), stores);
    __syncthreads();
    State state;
    attend(state, stores ? (work_.length - 1) / kTileKeys : -1);
    merge_warps(state);
    merge_splits();
  }

 private:
  __device__ uint32_t stage(int n) const {
    return shared_address(ring_) + (warp_ * kStages + n % kStages) * kStageBytes;
  }
  /// Finds the page numbers of this warp's tiles from tile `first + warp_` on, one per lane.
  __device__ void find_pages(int first) { pages_ = p_.rows.page_of(0, (first + warp_ + lane_ * kWarps) * kTileKeys); }
  __device__ int64_t entry(int page, int tile) const { return p_.rows.entry(max(page, 0), kv_head_, tile * kTileKeys); }
  __device__ const C* keys() const { return static_cast<const C*>(p_.k); }
  __device__ const C* values() const { return static_cast<const C*>(p_.v); }

  /// Starts the copy of this warp's n-th tile; past the last tile it commits an empty group. A new token is not copied.
  __device__ void load_tile(int n, int tile) {
    if (n > 0 && n % kWarp == 0) find_pages(tile - warp_);
    const int page = __shfl_sync(kAllLanes, pages_, n % kWarp);
    if (tile < end_) {
      const int key = tile * kTileKeys;
      if (page < 0 && lane_ == 0) lamina::cuda::report(p_.faults, lamina::cuda::Fault::cache_length, key);
      const int64_t at = entry(page, tile);
      const int count = page < 0 ? 0 : min((p_.step ? min(work_.end, work_.length - 1) : work_.end) - key, kTileKeys);
      const uint32_t to = stage(n);
      Tile::load(to, keys() + at * p_.d_qk, count, p_.d_qk, lane_);
      if (p_.v != nullptr) Tile::load(to + Tile::kBytes, values() + at * p_.d_v, count, p_.d_v, lane_);
      if constexpr (kBytes) {
        if (lane_ < 8) {  // 16 scales of keys, 16 of values
          const float* scales = lane_ < 4 || p_.v == nullptr ? p_.k_scales : p_.v_scales;
          cp_async_16(to + 2 * Tile::kBytes + lane_ * 16, scales + at + lane_ % 4 * 4, page >= 0);
        }
      }
    }
    cp_async_commit();
  }

  /// Puts the rotated queries into shared memory, split into kParts numbers each, with zeros beyond the last head and
  /// column. If `stores`, the last two warps prepare and store the new key and value.
  __device__ void prepare_heads(int position, bool stores) {
    constexpr int kChunks = kD / 8;
    const int part = warp_ - (kWarps - 2);
    for (int n = thread_; n < kHeads * kChunks; n += kThreads) {
      const int row = n / kChunks;
      const int column = n % kChunks * 8;
      HeadColumns query;
      if (row < p_.group && column < p_.d_qk) {
        query.fetch(p_, work_.first_token, kv_head_ * p_.group + row, column, p_.step, position);
      }
      query.finish(p_);
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        uint32_t parts[3];
        if constexpr (kParts == 1) {
          parts[0] = pack_pair<M>(query.x[i], query.x[i + 1]);
        } else {
          lamina::cuda::split_pair<M>(query.x[i], query.x[i + 1], parts);
        }
#pragma unroll
        for (int s = 0; s < kParts; ++s) {
          *reinterpret_cast<uint32_t*>(fixed_.queries + (s * kHeads + row) * State::kPitch + column + i) = parts[s];
        }
      }
    }
    if (!stores || part < 0) return;
    HeadColumns token;
    if (lane_ * 8 < p_.d_qk) {
      token.fetch(p_, work_.first_token, p_.n_heads + part * p_.rows.n_kv_heads + kv_head_, lane_ * 8, part == 0,
                  position);
    }
    token.finish(p_);
    fixed_.token.store(p_, work_, 0, kv_head_, part, token.x);
  }

  /// Writes the new token to its row of stage n.
  __device__ void insert_token(int n) {
    constexpr int kChunks = Tile::kChunks;
    unsigned char* to = ring_ + (warp_ * kStages + n % kStages) * kStageBytes;
    const int row = (work_.length - 1) % kTileKeys;
    for (int c = lane_; c < 2 * kChunks; c += kWarp) {
      const int part = c / kChunks;
      *reinterpret_cast<uint4*>(to + part * Tile::kBytes + Tile::at(row, c % kChunks)) =
          reinterpret_cast<const uint4*>(fixed_.token.columns[part])[c % kChunks];
    }
    if constexpr (kBytes) {
      if (lane_ < 2) {
        reinterpret_cast<float*>(to + 2 * Tile::kBytes)[lane_ * kTileKeys + row] = fixed_.token.scales[lane_];
      }
    }
    __syncwarp();
  }

  __device__ void attend(State& state, int token_tile) {
    const float scale = p_.scale * kLog2E;
    for (int n = 0, tile = first_ + warp_; tile < end_; ++n, tile += kWarps) {
      cp_async_wait<kStages - 1>();
      __syncwarp();
      if (tile == token_tile) insert_token(n);
      float s[1][4];
      State::multiply_keys(stage(n), fixed_.queries, lane_, s);
      const int key = tile * kTileKeys + lane_ / 4;  // key of s[0][0] and s[0][1]; the others are 8 keys later
      const float* scales = nullptr;
      if constexpr (kBytes) {
        scales =
            reinterpret_cast<const float*>(ring_ + (warp_ * kStages + n % kStages) * kStageBytes + 2 * Tile::kBytes) +
            lane_ / 4;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = key + i / 2 * 8;
        const bool seen = at >= work_.begin && at < work_.end;
        float score = s[0][i] * scale;
        if constexpr (kBytes) score *= scales[i / 2 * 8];
        s[0][i] = seen ? score : -INFINITY;
      }
      state.take_scores(s);
      if constexpr (kBytes) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s[0][i] = key + i / 2 * 8 < work_.end ? s[0][i] * scales[16 + i / 2 * 8] : 0.0F;
      }
      state.add_values(stage(n) + (p_.v != nullptr ? Tile::kBytes : 0), s, lane_);
      __syncwarp();  // all lanes have read the stage
      load_tile(n + kStages, tile + kStages * kWarps);
    }
    cp_async_wait();
    __syncthreads();  // the ring is free for the merge
  }

  /// Where the part of split s of this block's KV head begins.
  __device__ int64_t part_at(int s) const { return (int64_t{kv_head_} * p_.places + s) * kHeads; }

  /// Merges the warps into the part of this block.
  __device__ void merge_warps(State& state) {
    auto* merged = reinterpret_cast<float*>(ring_);  // [kWarps, kHeads, kPitch]
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float sum = state.sum[0][j];
#pragma unroll
      for (int step = 4; step < kWarp; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
      if (lane_ < 4) fixed_.stats[warp_][lane_ * 2 + j] = {state.most[0][j], sum};
    }
#pragma unroll
    for (int m = 0; m < State::kSteps; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = lane_ % 4 * 2 + i % 2;
        merged[(warp_ * kHeads + row) * kPitch + State::column(m, i, lane_)] = state.out[0][m][i];
      }
    }
    __syncthreads();
    const int quads = p_.d_v / 4;  // d_v is a multiple of 8
    for (int n = thread_; n < p_.group * quads; n += kThreads) {
      const int row = n / quads;
      const int c = (n - row * quads) * 4;
      float most = kMinusLarge;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) most = fmaxf(most, fixed_.stats[w][row].x);
      float sum = 0;
      float4 value{};
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float2 found = fixed_.stats[w][row];
        const float weight = fast_exp2(found.x - most);
        sum = fmaf(weight, found.y, sum);
        add_part(weight, *reinterpret_cast<const float4*>(merged + (w * kHeads + row) * kPitch + c), value);
      }
      store_four(p_.parts, DType::f32, (part_at(split_) + row) * p_.d_v + c, {value.x, value.y, value.z, value.w});
      if (c == 0) p_.part_sums[part_at(split_) + row] = {most, sum};
    }
  }
  __device__ static void add_part(float weight, const float4& part, float4& sum) {
    sum.x = fmaf(weight, part.x, sum.x);
    sum.y = fmaf(weight, part.y, sum.y);
    sum.z = fmaf(weight, part.z, sum.z);
    sum.w = fmaf(weight, part.w, sum.w);
  }

  /// Counts this block's part. Returns true in the last block of the KV head, which then sees all parts.
  __device__ bool is_last() {
    __syncthreads();
    if (thread_ == 0) {
      int* counter = p_.counters + kv_head_;
      int before = 0;
      asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;"
                   : "=r"(before)
                   : "l"(__cvta_generic_to_global(counter))
                   : "memory");
      fixed_.last = before == p_.places - 1 ? 1 : 0;
      if (fixed_.last != 0) *counter = 0;
    }
    __syncthreads();
    return fixed_.last != 0;
  }

  /// Merges the parts of all splits in the last block. They are copied to shared memory while the weights of the splits
  /// are computed. Groups of threads sum equal ranges of the splits.
  __device__ void merge_splits() {
    if (!is_last()) return;
    const int splits = p_.places;
    const int quads = p_.d_v / 4;
    const int items = p_.group * quads;
    auto* weights = reinterpret_cast<float*>(ring_ + kCopies);  // [kHeads, splits]
    auto* copies = reinterpret_cast<float4*>(ring_);            // [splits, items]
    int groups = 1;
    while (2 * groups * items <= kThreads) groups *= 2;
    const int most = kCopies / (items * static_cast<int>(sizeof(float4)));
    float4 sum[kItemsEach] = {};
    for (int first = 0; first < splits; first += most) {
      const int count = min(most, splits - first);
      for (int n = thread_; n < count * items; n += kThreads) {
        const int s = n / items;
        cp_async_16(shared_address(copies + n), p_.parts + part_at(first + s) * p_.d_v + (n - s * items) * 4, true);
      }
      cp_async_commit();
      if (first == 0) find_weights(weights, splits);
      cp_async_wait();
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kItemsEach; ++i) {
        const int n = thread_ + i * kThreads;
        const int group = n / items;
        const int item = n - group * items;
        if (group >= groups) break;
        const float* own = weights + item / quads * splits + first;
        for (int s = group; s < count; s += groups) add_part(own[s], copies[s * items + item], sum[i]);
      }
      __syncthreads();  // the copies are free again
    }
#pragma unroll
    for (int i = 0; i < kItemsEach; ++i) {
      if (thread_ + i * kThreads < groups * items) copies[thread_ + i * kThreads] = sum[i];
    }
    __syncthreads();
    for (int item = thread_; item < items; item += kThreads) {
      const int row = item / quads;
      float4 value{};
      for (int g = 0; g < groups; ++g) add_part(fixed_.stats[0][row].x, copies[g * items + item], value);
      const int64_t at = (int64_t{work_.first_token} * p_.n_heads + kv_head_ * p_.group + row) * p_.d_v;
      store_four(p_.y, p_.q_type, at + (item - row * quads) * 4, {value.x, value.y, value.z, value.w});
    }
  }
  /// Fills weights [kHeads, splits], and the inverse sums of the heads. All threads must call it.
  __device__ void find_weights(float* weights, int splits) {
    for (int row = warp_; row < p_.group; row += kWarps) {
      const float2* from = p_.part_sums + part_at(0) + row;
      const float sink = p_.sinks == nullptr ? kMinusLarge : p_.sinks[kv_head_ * p_.group + row] * kLog2E;
      float most = fmaxf(sink, kMinusLarge);
      for (int s = lane_; s < splits; s += kWarp) most = fmaxf(most, __ldcg(from + s * kHeads).x);
      most = lamina::cuda::warp_max(most);
      float sum = 0;
      for (int s = lane_; s < splits; s += kWarp) {
        const float2 found = __ldcg(from + s * kHeads);
        weights[row * splits + s] = fast_exp2(found.x - most);
        sum = fmaf(weights[row * splits + s], found.y, sum);
      }
      sum = lamina::cuda::warp_sum(sum);
      if (sink > kMinusLarge) sum += fast_exp2(sink - most);
      if (lane_ == 0) fixed_.stats[0][row] = {sum != 0 ? 1.0F / sum : 0.0F, 0.0F};
    }
    __syncthreads();
  }

  const Params& p_;
  unsigned char* ring_;
  Fixed& fixed_;
  const int thread_ = static_cast<int>(threadIdx.x);
  const int lane_ = thread_ % kWarp;
  const int warp_ = thread_ / kWarp;
  const int kv_head_ = static_cast<int>(blockIdx.x) / p_.places;
  const int split_ = static_cast<int>(blockIdx.x) % p_.places;
  RowWork work_;
  int first_ = 0;  // tiles [first_, end_)
  int end_ = 0;
  int pages_ = -1;
};

}  // namespace lamina::ops::cuda::paged
