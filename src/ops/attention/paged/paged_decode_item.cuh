#pragma once

// One block of flash decoding over pages. It processes units of short rows, then items of long rows
// (paged_decode_device.cuh explains these). Each warp processes every kWarps-th tile of the keys; then the warps are
// merged, then the splits. The last block to finish a unit merges its splits in order, so the result does not depend on
// which block that is.
//
// Short rows are limited by latency. All tiles that fit in the ring are requested as soon as the row's length is known;
// in a step this is even before the previous kernel has computed the queries. Meanwhile the queries are rotated, and so
// is the new token, which its block need not read back from global memory.

#include "lamina/ops/attention/paged/paged_decode_heads.cuh"
#include "lamina/ops/attention/paged/paged_decode_tile.cuh"

namespace lamina::ops::cuda::paged {

/// The block. kWarps is 2 in batches with many units: several blocks per SM then hide each other's latency.
template <class C, class M, int kD, int kParts, int kTiles, int kWarps>
class DecodeBlock {
  using State = WarpState<C, M, kD, kParts, kTiles>;
  using Tile = PageTile<C, kD>;
  static constexpr bool kBytes = State::kBytes;
  static constexpr int kStages = 3;
  static constexpr int kScaleBytes = kBytes ? 2 * kTileKeys * 4 : 0;
  static constexpr int kStageBytes = 2 * Tile::kBytes + kScaleBytes;
  static constexpr int kEarlyLengths = 4;  // lengths per thread that are loaded early
  static constexpr int kPitch = kD + 4;    // floats per row of merged values; avoids bank conflicts

 public:
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kRows = kTiles * 8;  // queries per unit

 private:
  struct Fixed {  // shared memory after the ring
    NewToken<C, kD> token;
    M queries[kParts * kRows * State::kPitch];
    float2 stats[kWarps][kRows];
    long long scratch[kWarps];
    int last;
  };
  static constexpr int kRing = kWarps * kStages * kStageBytes;
  static_assert(kWarps * kRows * kPitch * 4 <= kRing, "the merge reuses the ring");
  static_assert(kWarps >= 2, "one warp stores the new key, another the new value");

 public:
  /// The number of splits of a unit that merge_splits() can handle. It keeps a weight per row and split in the memory
  /// of the ring.
  static constexpr int kMostSplits = kRing / (kRows * static_cast<int>(sizeof(float)));

  /// Bytes of shared memory for a batch of `rows` rows.
  static size_t bytes(int rows) { return kRing + sizeof(Fixed) + sizeof(int) * static_cast<size_t>(rows + 1); }

  __device__ DecodeBlock(const Params& p, unsigned char* memory)
      : p_(p),
        ring_(memory),
        fixed_(*reinterpret_cast<Fixed*>(memory + kRing)),
        first_item_(reinterpret_cast<int*>(memory + kRing + sizeof(Fixed))) {}

  __device__ void run() {
    if (!p_.settled) wait_for_queries();
    run_pieces();
    wait_for_queries();  // also without work, because the end of this kernel must imply the end of the previous one
  }

 private:
  /// Waits for the previous kernel; later calls do nothing.
  __device__ void wait_for_queries() {
    if (!waited_) lamina::cuda::grid_dependency_wait();
    waited_ = true;
  }
  __device__ void run_pieces() {
    Piece piece;
    int unit = static_cast<int>(blockIdx.x);
    int item = static_cast<int>(blockIdx.x);
    fetch_lengths();
    for (;;) {  // one loop for short and long rows, so that the code is inlined once
      if (unit < p_.units) {
        const bool takes = find_short(unit, piece);
        unit += static_cast<int>(gridDim.x);
        if (!takes) continue;
      } else {
        if (!batch_known_) meet_and_look_for_long_rows();
        if (!has_long_rows_) return;
        if (!divided_) divide();
        if (item >= first_item_[p_.rows.rows]) return;
        find_item(item, piece);
        item += static_cast<int>(gridDim.x);
      }
      State state;
      attend(piece, state);
      merge_warps(piece, state);
      if (piece.splits > 1) merge_splits(piece);
      __syncthreads();  // the ring is free again
    }
  }

  /// The work between two merges: a unit of a short row, or an item of a long one.
  struct Piece {
    RowWork work;
    int first;  // tiles [first, end)
    int end;
    int unit;  // unit within the row
    int split;
    int splits;
    int item;
  };

  /// Fills `piece` with a unit of a short row; returns false if the row is long.
  __device__ bool find_short(int unit, Piece& piece) {
    const int block = unit / p_.rows.n_kv_heads;
    kv_head_ = unit - block * p_.rows.n_kv_heads;
    row_ = p_.row_blocks == 1 ? block : block / p_.row_blocks;
    const int row_block = block - row_ * p_.row_blocks;
    first_row_ = row_block * kRows;
    find_pages(0);  // a guess that is right for most rows; the load overlaps with that of the length
    const int64_t position = given_position(p_, row_);
    piece.work = RowWork(p_, row_, kRows);
    position_ = checked_position(p_, position);
    const RowWork& work = piece.work;
    if (thread_ == 0 && kv_head_ == 0 && row_block == 0) work.report_fault(p_);
    if (row_block >= work.row_blocks || !work.is_short(p_)) return false;
    piece.first = work.begin / kTileKeys;
    piece.end = piece.first + work.tiles;
    piece.split = 0;
    piece.splits = 1;
    if (piece.first != 0) find_pages(piece.first);
    return true;
  }
  __device__ void find_item(int item, Piece& piece) {
    row_ = row_of(p_, first_item_, item);
    position_ = checked_position(p_, given_position(p_, row_));
    piece.work = RowWork(p_, row_, kRows);
    const RowWork& work = piece.work;
    const int local = item - first_item_[row_];
    piece.item = item;
    piece.splits = work.splits(split_size_);
    piece.split = local % piece.splits;
    piece.unit = local / piece.splits;
    kv_head_ = piece.unit % p_.rows.n_kv_heads;
    first_row_ = piece.unit / p_.rows.n_kv_heads * kRows;
    const int each = (work.tiles + piece.splits - 1) / piece.splits;
    const int origin = work.begin / kTileKeys;
    piece.first = origin + piece.split * each;
    piece.end = origin + min((piece.split + 1) * each, work.tiles);
    find_pages(piece.first);
  }
  __device__ void divide() {
    split_size_ = divide_long_rows<kThreads>(p_, kRows, first_item_, fixed_.scratch);
    divided_ = true;
  }

  /// Starts the loads of lengths that meet_and_look_for_long_rows() needs.
  __device__ void fetch_lengths() {
#pragma unroll
    for (int n = 0; n < kEarlyLengths; ++n) {
      const int r = thread_ + n * kThreads;
      lengths_[n] = r < p_.rows.rows ? p_.rows.lengths[r] : 0;
    }
  }
  /// A barrier of the block that also finds out whether the batch has long rows.
  __device__ void meet_and_look_for_long_rows() {
    int longest = 0;
    for (int r = thread_ + kEarlyLengths * kThreads; r < p_.rows.rows; r += kThreads) {
      longest = max(longest, p_.rows.lengths[r]);
    }
#pragma unroll
    for (const int length : lengths_) longest = max(longest, length);
    has_long_rows_ = __syncthreads_or(longest > p_.unsplit_tiles() * kTileKeys) != 0;
    batch_known_ = true;
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

  /// Starts the loads of this thread's chunk of eight columns of a query; `row` and `column` identify the chunk.
  __device__ HeadColumns fetch_query(const RowWork& work, int row, int column) const {
    HeadColumns query;
    if (row < query_rows(work) && column < p_.d_qk) {
      query.fetch(p_, work.first_token + query_of(work, row), head_of(work, row), column, p_.step, position_);
    }
    return query;
  }
  /// Writes eight columns of a query to shared memory, split into kParts numbers each. Rows and columns beyond the last
  /// become zero.
  __device__ void stage_query(HeadColumns& query, int row, int column) {
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
      for (int part = 0; part < kParts; ++part) {
        *reinterpret_cast<uint32_t*>(fixed_.queries + (part * kRows + row) * State::kPitch + column + i) = parts[part];
      }
    }
  }
  /// Requests the first kStages tiles, then prepares the queries and, if `stores`, the new token. The last two warps
  /// handle the key and the value of the new token.
  __device__ void start(const RowWork& work, int first, int end, bool stores) {
    constexpr int kChunks = kD / 8;
    const int part = warp_ - (kWarps - 2);
    stores = stores && part >= 0;
    int row = thread_ / kChunks;
    const int column = thread_ % kChunks * 8;
#pragma unroll
    for (int n = 0; n < kStages; ++n) load_tile(work, n, first + warp_ + n * kWarps, end);
    wait_for_queries();
    HeadColumns query;
    if (row < kRows) query = fetch_query(work, row, column);
    HeadColumns token;
    if (stores && lane_ * 8 < p_.d_qk) {
      token.fetch(p_, work.first_token, p_.n_heads + part * p_.rows.n_kv_heads + kv_head_, lane_ * 8, part == 0,
                  position_);
    }
    if (row < kRows) stage_query(query, row, column);
    for (row += kThreads / kChunks; row < kRows; row += kThreads / kChunks) {
      query = fetch_query(work, row, column);
      stage_query(query, row, column);
    }
    if (stores) {
      token.finish(p_);
      fixed_.token.store(p_, work, row_, kv_head_, part, token.x);
    }
  }

  __device__ uint32_t stage(int n) const {
    return shared_address(ring_) + (warp_ * kStages + n % kStages) * kStageBytes;
  }
  /// Finds the page numbers of this warp's tiles from tile `first + warp_` on, one per lane.
  __device__ void find_pages(int first) {
    pages_ = p_.rows.page_of(row_, (first + warp_ + lane_ * kWarps) * kTileKeys);
  }
  /// Starts the copy of this warp's n-th tile, whose index is `tile`; past the last tile it commits an empty group. A
  /// new token is not copied.
  __device__ void load_tile(const RowWork& work, int n, int tile, int end) {
    if (n > 0 && n % kWarp == 0) find_pages(tile - warp_);
    const int page = __shfl_sync(kAllLanes, pages_, n % kWarp);
    if (tile < end) {
      const int key = tile * kTileKeys;
      if (page < 0 && lane_ == 0) lamina::cuda::report(p_.faults, lamina::cuda::Fault::cache_length, key);
      const int64_t entry = p_.rows.entry(max(page, 0), kv_head_, key);
      const int count = page < 0 ? 0 : min((p_.step ? min(work.end, work.length - 1) : work.end) - key, kTileKeys);
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

  /// Writes the new token to its row of stage n.
  __device__ void insert_token(const RowWork& work, int n) {
    constexpr int kChunks = Tile::kChunks;
    unsigned char* to = ring_ + (warp_ * kStages + n % kStages) * kStageBytes;
    const int row = (work.length - 1) % kTileKeys;
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

  __device__ void attend(const Piece& piece, State& state) {
    const RowWork& work = piece.work;
    const int end = piece.end;
    const bool stores = p_.step && piece.split == piece.splits - 1 && work.length > 0;
    start(work, piece.first, end, stores);
    const int token_tile = stores ? (work.length - 1) / kTileKeys : -1;
    int low[kTiles][2];  // keys that this lane's queries see are in [low, high)
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
    if (batch_known_) {
      __syncthreads();
    } else {
      meet_and_look_for_long_rows();
    }
    int tile = piece.first + warp_;
    for (int n = 0; tile < end; ++n, tile += kWarps) {
      cp_async_wait<kStages - 1>();
      __syncwarp();
      if (tile == token_tile) insert_token(work, n);
      float s[kTiles][4];
      State::multiply_keys(stage(n), fixed_.queries, lane_, s);
      const int key = tile * kTileKeys + lane_ / 4;  // key of s[..][0] and s[..][1]; the others are 8 keys later
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
                seen ? paged_score(p_, work.count, work.length, s[t][i], head_of(work, row), query_of(work, row), at)
                     : -INFINITY;
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
      load_tile(work, n + kStages, tile + kStages * kWarps, end);
    }
    cp_async_wait();
    __syncthreads();  // the ring is free for the merge
  }

  /// Merges the warps. Writes y, or the part of this split.
  __device__ void merge_warps(const Piece& piece, State& state);
  /// If this split is the last of its unit to finish, merges the parts of all splits.
  __device__ void merge_splits(const Piece& piece);
  __device__ float sink_of(const RowWork& work, int row) const {
    return p_.sinks == nullptr ? kMinusLarge : p_.sinks[head_of(work, row)] * kLog2E;
  }

  const Params& p_;
  unsigned char* ring_;
  Fixed& fixed_;
  int* first_item_;  // [rows + 1]; see divide_long_rows()
  const int thread_ = static_cast<int>(threadIdx.x);
  const int lane_ = thread_ % kWarp;
  const int warp_ = thread_ / kWarp;
  int row_ = 0;
  int kv_head_ = 0;
  int first_row_ = 0;
  int position_ = 0;  // position of the new token in a step
  int pages_ = -1;
  int split_size_ = 0;
  bool divided_ = false;
  int lengths_[kEarlyLengths];
  bool batch_known_ = false;
  bool has_long_rows_ = false;
  bool waited_ = false;
};

}  // namespace lamina::ops::cuda::paged

#include "lamina/ops/attention/paged/paged_decode_merge.cuh"
