#pragma once

// One block of flash decoding over pages: takes items (paged_decode_device.cuh), lets each warp process every kWarps-th
// tile of an item's keys, and merges warps, then splits. The last block to finish a unit merges its splits in order,
// so the result does not depend on which block that is.

#include "lamina/ops/attention/paged/paged_decode_tile.cuh"

namespace lamina::ops::cuda::paged {

template <class C, class M, int kD, int kParts, int kTiles>
class DecodeBlock {
  using State = WarpState<C, M, kD, kParts, kTiles>;
  using Tile = PageTile<C, kD>;
  static constexpr bool kBytes = State::kBytes;
  static constexpr int kStages = 3;
  static constexpr int kScaleBytes = kBytes ? 2 * kTileKeys * 4 : 0;
  static constexpr int kStageBytes = 2 * Tile::kBytes + kScaleBytes;
  static constexpr int kPitch = kD + 4;  // of merged values; avoids bank conflicts

 public:
  static constexpr int kWarps = kD == 64 ? 8 : 4;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kRows = kTiles * 8;  // queries

 private:
  struct Fixed {  // shared memory after the ring
    M queries[kParts * kRows * State::kPitch];
    float2 stats[kWarps][kRows];
    long long scratch[kWarps];
    int last;
  };
  static constexpr int kRing = kWarps * kStages * kStageBytes;
  static_assert(kWarps * kRows * kPitch * 4 <= kRing, "the merge reuses the ring");

 public:
  /// Shared memory for a batch of `rows`.
  static size_t bytes(int rows) { return kRing + sizeof(Fixed) + sizeof(int) * static_cast<size_t>(rows + 1); }

  __device__ DecodeBlock(const Params& p, unsigned char* memory)
      : p_(p),
        ring_(memory),
        fixed_(*reinterpret_cast<Fixed*>(memory + kRing)),
        division_(p, kRows, reinterpret_cast<int*>(memory + kRing + sizeof(Fixed)), fixed_.scratch) {}

  __device__ void run() {
    const int items = division_.first_item[p_.rows.rows];
    for (int item = static_cast<int>(blockIdx.x); item < items; item += static_cast<int>(gridDim.x)) {
      run_item(item);
      __syncthreads();  // the ring is free again
    }
  }

 private:
  __device__ void run_item(int item) {
    row_ = division_.row_of(p_, item);
    const RowWork work(p_, row_, kRows);
    const int splits = work.splits(division_.size);
    const int local = item - division_.first_item[row_];
    const int split = local % splits;
    const int unit = local / splits;
    kv_head_ = unit % p_.rows.n_kv_heads;
    first_row_ = unit / p_.rows.n_kv_heads * kRows;
    const int each = (work.tiles + splits - 1) / splits;
    const int first = work.begin / kTileKeys + split * each;
    const int end = work.begin / kTileKeys + min((split + 1) * each, work.tiles);
    if (p_.step && work.length > 0 && split == splits - 1) {  // the block with the last key stores it first
      store_new_token<C>(p_, work, row_, kv_head_);
      __syncthreads();
    }
    State state;
    attend(work, first, end, state);
    merge_warps(work, state, item, splits);
    if (splits > 1) merge_splits(work, item - split, splits, unit);
  }

  __device__ int query_rows(const RowWork& work) const { return min(p_.group * work.count - first_row_, kRows); }
  __device__ int head_of(const RowWork& work, int row) const {
    return kv_head_ * p_.group + (work.count == 1 ? first_row_ + row : (first_row_ + row) / work.count);
  }
  __device__ int query_of(const RowWork& work, int row) const {
    return work.count == 1 ? 0 : (first_row_ + row) % work.count;
  }
  __device__ int64_t y_at(const RowWork& work, int row) const {
    return (static_cast<int64_t>(work.first_token + query_of(work, row)) * p_.n_heads + head_of(work, row)) * p_.d_v;
  }

  /// Queries to shared memory, split into kParts; zeros beyond the last row and column.
  __device__ void stage_queries(const RowWork& work) {
    constexpr int kChunks = kD / 8;
    const int rows = query_rows(work);
    for (int n = thread_; n < kRows * kChunks; n += kThreads) {
      const int row = n / kChunks;
      const int column = n % kChunks * 8;
      float x[8] = {};
      if (row < rows && column < p_.d_qk) {
        load_head(p_, work.first_token + query_of(work, row), head_of(work, row), column, p_.step, x);
      }
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        uint32_t parts[3];
        if constexpr (kParts == 1) {
          parts[0] = pack_pair<M>(x[i], x[i + 1]);
        } else {
          lamina::cuda::split_pair<M>(x[i], x[i + 1], parts);
        }
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          *reinterpret_cast<uint32_t*>(fixed_.queries + (part * kRows + row) * State::kPitch + column + i) =
              parts[part];
        }
      }
    }
  }

  __device__ uint32_t stage(int n) const {
    return shared_address(ring_) + (warp_ * kStages + n % kStages) * kStageBytes;
  }
  /// Starts the copy of tile n of this warp (tile index `tile`); an empty group past the last one.
  __device__ void load_tile(const RowWork& work, int n, int tile, int end) {
    if (n % kWarp == 0) {  // page numbers of the next 32 tiles, one per lane
      const int ahead = tile + lane_ * kWarps;
      pages_ = ahead < end ? p_.rows.page_of(row_, ahead * kTileKeys) : -1;
    }
    const int page = __shfl_sync(kAllLanes, pages_, n % kWarp);
    if (tile < end) {
      const int key = tile * kTileKeys;
      if (page < 0 && lane_ == 0) lamina::cuda::report(p_.faults, lamina::cuda::Fault::cache_length, key);
      const int64_t entry = p_.rows.entry(max(page, 0), kv_head_, key);
      const int count = page < 0 ? 0 : min(work.end - key, kTileKeys);
      const uint32_t to = stage(n);
      Tile::load(to, static_cast<const C*>(p_.k) + entry * p_.d_qk, count, p_.d_qk, lane_);
      if (p_.v != nullptr) {
        Tile::load(to + Tile::kBytes, static_cast<const C*>(p_.v) + entry * p_.d_v, count, p_.d_v, lane_);
      }
      if constexpr (kBytes) {
        if (lane_ < 8) {  // 16 scales of keys, 16 of values
          const float* scales = lane_ < 4 || p_.v == nullptr ? p_.k_scales : p_.v_scales;
          cp_async_16(to + 2 * Tile::kBytes + lane_ * 16, scales + entry + lane_ % 4 * 4, page >= 0);
        }
      }
    }
    cp_async_commit();
  }

  __device__ void attend(const RowWork& work, int first, int end, State& state) {
    int low[kTiles][2];  // keys that this lane's queries see
    int high[kTiles][2];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int row = t * 8 + lane_ % 4 * 2 + j;
        const bool there = row < query_rows(work);
        const DeviceMask::Range seen = work.mask.keys(there ? query_of(work, row) : 0);
        low[t][j] = there ? seen.begin : 0;
        high[t][j] = there ? min(seen.end, work.length) : 0;
      }
    }
    int tile = first + warp_;
#pragma unroll
    for (int n = 0; n < kStages - 1; ++n) load_tile(work, n, tile + n * kWarps, end);
    stage_queries(work);
    __syncthreads();
    for (int n = 0; tile < end; ++n, tile += kWarps) {
      cp_async_wait<kStages - 2>();
      __syncwarp();
      load_tile(work, n + kStages - 1, tile + (kStages - 1) * kWarps, end);
      float s[kTiles][4];
      State::multiply_keys(stage(n), fixed_.queries, lane_, s);
      const int key = tile * kTileKeys + lane_ / 4;  // of s[..][0], s[..][1]; the others are 8 keys later
      const float* scales = nullptr;
      if constexpr (kBytes) {
        scales =
            reinterpret_cast<const float*>(ring_ + (warp_ * kStages + n % kStages) * kStageBytes + 2 * Tile::kBytes) +
            lane_ / 4;
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
#pragma unroll
          for (int i = 0; i < 4; ++i) s[t][i] *= scales[i / 2 * 8];
        }
      }
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = key + i / 2 * 8;
          const bool seen = at >= low[t][i % 2] && at < high[t][i % 2];
          if (p_.plain) {
            s[t][i] = seen ? s[t][i] * (p_.scale * kLog2E) : -INFINITY;
          } else {
            const int row = t * 8 + lane_ % 4 * 2 + i % 2;
            s[t][i] =
                seen ? paged_score(p_, work.mask, s[t][i], head_of(work, row), query_of(work, row), at) : -INFINITY;
          }
        }
      }
      state.take_scores(s);
      if constexpr (kBytes) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
#pragma unroll
          for (int i = 0; i < 4; ++i) s[t][i] = key + i / 2 * 8 < work.end ? s[t][i] * scales[16 + i / 2 * 8] : 0.0F;
        }
      }
      state.add_values(stage(n) + (p_.v != nullptr ? Tile::kBytes : 0), s, lane_);
      __syncwarp();  // all lanes have read the stage
    }
    cp_async_wait();
    __syncthreads();  // the ring is free for the merge
  }

  /// Writes y, or the part of this split.
  __device__ void merge_warps(const RowWork& work, State& state, int item, int splits) {
    auto* values = reinterpret_cast<float*>(ring_);  // [kWarps, kRows, kPitch]
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float sum = state.sum[t][j];
#pragma unroll
        for (int step = 4; step < kWarp; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
        if (lane_ < 4) fixed_.stats[warp_][t * 8 + lane_ * 2 + j] = {state.most[t][j], sum};
      }
#pragma unroll
      for (int m = 0; m < State::kSteps; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = t * 8 + lane_ % 4 * 2 + i % 2;
          values[(warp_ * kRows + row) * kPitch + State::column(m, i, lane_)] = state.out[t][m][i];
        }
      }
    }
    __syncthreads();
    const int rows = query_rows(work);
    for (int n = thread_; n < rows * kD; n += kThreads) {
      const int row = n / kD;
      const int c = n % kD;
      if (c >= p_.d_v) continue;
      const float sink = splits == 1 ? sink_of(work, row) : kLowest;
      float most = fmaxf(sink, kLowest);
#pragma unroll
      for (int w = 0; w < kWarps; ++w) most = fmaxf(most, fixed_.stats[w][row].x);
      float sum = sink > kLowest ? fast_exp2(sink - most) : 0.0F;
      float value = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float2 found = fixed_.stats[w][row];
        const float weight = fast_exp2(found.x - most);
        sum = fmaf(weight, found.y, sum);
        value = fmaf(weight, values[(w * kRows + row) * kPitch + c], value);
      }
      if (splits == 1) {
        store_number(p_.y, p_.q_type, y_at(work, row) + c, sum != 0 ? value / sum : 0.0F);
      } else {
        p_.parts[(static_cast<int64_t>(item) * kRows + row) * p_.d_v + c] = value;
        if (c == 0) p_.part_sums[static_cast<int64_t>(item) * kRows + row] = {most, sum};
      }
    }
  }
  __device__ float sink_of(const RowWork& work, int row) const {
    return p_.sinks == nullptr ? kLowest : p_.sinks[head_of(work, row)] * kLog2E;
  }

  /// If this is the last split of the unit to finish: merges the parts of all, items `first_item` and following.
  __device__ void merge_splits(const RowWork& work, int first_item, int splits, int unit) {
    __threadfence();
    __syncthreads();
    if (thread_ == 0) {
      int* counter = p_.counters + static_cast<int64_t>(row_) * p_.rows.n_kv_heads * p_.row_blocks + unit;
      fixed_.last = atomicAdd(counter, 1) == splits - 1 ? 1 : 0;
      if (fixed_.last != 0) *counter = 0;
    }
    __syncthreads();
    if (fixed_.last == 0) return;
    __threadfence();
    const int rows = query_rows(work);
    auto* weights = reinterpret_cast<float*>(ring_);  // [kRows, splits]
    for (int row = warp_; row < rows; row += kWarps) {
      const float2* sums = p_.part_sums + static_cast<int64_t>(first_item) * kRows + row;
      const float sink = sink_of(work, row);
      float most = fmaxf(sink, kLowest);
      for (int s = lane_; s < splits; s += kWarp) most = fmaxf(most, __ldcg(sums + s * kRows).x);
      most = lamina::cuda::warp_max(most);
      float sum = 0;
      for (int s = lane_; s < splits; s += kWarp) {
        const float2 found = __ldcg(sums + s * kRows);
        weights[row * splits + s] = fast_exp2(found.x - most);
        sum = fmaf(weights[row * splits + s], found.y, sum);
      }
      sum = lamina::cuda::warp_sum(sum);
      if (sink > kLowest) sum += fast_exp2(sink - most);
      if (lane_ == 0) fixed_.stats[0][row] = {sum != 0 ? 1.0F / sum : 0.0F, 0.0F};
    }
    __syncthreads();
    const int quads = p_.d_v / 4;  // d_v is a multiple of 8
    for (int n = thread_; n < rows * quads; n += kThreads) {
      const int row = n / quads;
      const int c = (n - row * quads) * 4;
      const float* from = p_.parts + (static_cast<int64_t>(first_item) * kRows + row) * p_.d_v + c;
      const int64_t hop = static_cast<int64_t>(kRows) * p_.d_v;
      float4 value{};
#pragma unroll 8
      for (int s = 0; s < splits; ++s) {
        const float4 part = __ldcg(reinterpret_cast<const float4*>(from + s * hop));
        const float weight = weights[row * splits + s];
        value = {fmaf(weight, part.x, value.x), fmaf(weight, part.y, value.y), fmaf(weight, part.z, value.z),
                 fmaf(weight, part.w, value.w)};
      }
      const float inverse = fixed_.stats[0][row].x;
      const float all[4] = {value.x * inverse, value.y * inverse, value.z * inverse, value.w * inverse};
      const int64_t at = y_at(work, row) + c;
#pragma unroll
      for (int i = 0; i < 4; ++i) store_number(p_.y, p_.q_type, at + i, all[i]);
    }
  }

  const Params& p_;
  unsigned char* ring_;
  Fixed& fixed_;
  const Division<kThreads> division_;
  const int thread_ = static_cast<int>(threadIdx.x);
  const int lane_ = thread_ % kWarp;
  const int warp_ = thread_ / kWarp;
  int row_ = 0;
  int kv_head_ = 0;
  int first_row_ = 0;
  int pages_ = -1;
};

}  // namespace lamina::ops::cuda::paged
