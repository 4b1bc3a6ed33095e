#pragma once

// Shared by the two kernels of the two-pass backward on Hopper's tensor cores (wgmma): one computes dk and dv, the
// other dq. As in mma/backward_mma.cuh, both recompute the weights, and every sum is accumulated by one warpgroup in a
// fixed order. A block is one warpgroup with 64 rows of a head up to 64 wide. Three blocks share an SM, so the tensor
// cores stay busy while one block works between its products. The other operand is streamed in tiles of 64 rows,
// double-buffered in shared memory.
//
// Scores are processed in halves of 32 columns: the elementwise work then fits the registers, and the products of one
// half overlap with the elementwise work of the other. The kernels are limited by instruction issue as much as by
// products, so everything that is constant per tile, above all addresses, is computed once. Resident left operands are
// read from shared memory; holding them in registers is no faster.

#include "lamina/ops/attention/cuda/score_gradients.cuh"
#include "lamina/ops/attention/cuda/wgmma/wgmma.cuh"

namespace lamina::ops::cuda {

inline constexpr int kHeadWidth = 64;   // head width, padded
inline constexpr int kTileRows = 64;    // rows per block, and per step
inline constexpr int kBlocksPerSm = 3;  // resident blocks per SM
inline constexpr int kTileBytes = kTileRows * kHeadWidth * 2;
inline constexpr int kStageBytes = 2 * kTileBytes;
/// Shared memory of both kernels: two resident tiles, two stages of two streamed tiles, and slack for 1024-byte
/// alignment.
inline constexpr int kTwoPassBytes = 1024 + 2 * kTileBytes + 2 * kStageBytes;

inline constexpr int kHalfColumns = kTileRows / 2;
inline constexpr int kHalfBlocks = kHalfColumns / 8;
using Accumulator64 = AccumulatorTile<1, kTileRows / 8>;
using HalfSums = AccumulatorTile<1, kHalfBlocks>;

/// The left or the right half of an accumulator's columns.
__device__ inline HalfSums& half_of_sums(Accumulator64& sums, int right) {
  return *reinterpret_cast<HalfSums*>(&sums[0][right * kHalfBlocks]);
}

/// The part of each tile that one thread loads: 8 columns of every kStep-th row.
template <class T>
class TileSource {
 public:
  /// `head` points to position 0 of the head.
  __device__ TileSource(const T* head, int64_t stride, int seq, int width, bool vectorized)
      : own_(reinterpret_cast<const char*>(head + chunk() * 8)),
        row_bytes_(static_cast<uint32_t>(stride) * 2),
        seq_(seq),
        width_(width),
        vectorized_(vectorized) {}
  /// Starts loading rows from `position` on. Rows past the end become zero. The tile may be read after cp_async_wait()
  /// and a barrier.
  __device__ void fill(const Tile<T, kHeadWidth>& tile, int position) const {
    if (!vectorized_ || width_ < kHeadWidth || position + kTileRows > seq_) {
      const T* from = reinterpret_cast<const T*>(own_ + at(position)) - chunk() * 8;
      tile.template fill<kTileRows, kGroupThreads>(from, row_bytes_ / 2, seq_ - position, width_, vectorized_);
      return;
    }
    const uint32_t to = tile.at(first(), chunk());
#pragma unroll
    for (int row = 0; row < kTileRows; row += kStep) {
      cp_async_16(to + row * kHeadWidth * 2, own_ + at(position + first() + row), true);
    }
  }

 private:
  static constexpr int kChunks = kHeadWidth / 8;
  static constexpr int kStep = kGroupThreads / kChunks;
  __device__ static int chunk() { return static_cast<int>(threadIdx.x) % kChunks; }
  __device__ static int first() { return static_cast<int>(threadIdx.x) / kChunks; }
  __device__ uint64_t at(int row) const { return static_cast<uint64_t>(static_cast<uint32_t>(row)) * row_bytes_; }

  const char* own_;
  uint32_t row_bytes_;
  int seq_;
  int width_;
  bool vectorized_;
};

/// Identifies a tile of queries of one head.
struct QueryTile {
  int head;
  int q0;
};

/// Iterates over the tiles of queries that see any of the keys [k0, k1), one head after the other.
struct QueryTileIterator {
  const AttentionParams& p;
  int k0;
  int k1;
  int q_begin;
  int q_end;
  int head_begin;
  int head_end;
  DeviceMask::Range whole;  // queries that see all of these keys

  __device__ QueryTileIterator(const AttentionParams& params, int kv_head, int first, int last)
      : p(params),
        k0(first),
        k1(last),
        q_begin(max(params.mask.queries(first).begin, 0) / kTileRows * kTileRows),
        q_end(min(params.mask.queries(last - 1).end, params.seq_q)),
        head_begin(kv_head * params.group),
        head_end((kv_head + 1) * params.group),
        whole{params.mask.queries(last - 1).begin, params.mask.queries(first).end} {}
  __device__ bool has(const QueryTile& tile) const { return tile.head < head_end; }
  template <bool kHoles = false>
  __device__ QueryTile first() const {
    return seen<kHoles>({head_begin, q_begin});
  }
  template <bool kHoles = false>
  __device__ QueryTile next(const QueryTile& tile) const {
    return seen<kHoles>({tile.head, tile.q0 + kTileRows});
  }

 private:
  /// Returns `tile` if its queries see one of the keys, else the next such tile.
  template <bool kHoles>
  __device__ QueryTile seen(QueryTile tile) const {
    while (has(tile)) {
      if (tile.q0 >= q_end) {
        tile = {q_begin < q_end ? tile.head + 1 : head_end, q_begin};
      } else if (kHoles && p.mask.next_keys(tile.q0, min(tile.q0 + kTileRows, p.seq_q), k0, k1, kTileRows) >= k1) {
        tile.q0 += kTileRows;
      } else {
        break;
      }
    }
    return tile;
  }
};

/// sums = left · rightᵀ, or sums += left · rightᵀ if `add_to`. The rows of both tiles run along k.
template <class T>
__device__ inline void multiply_rows(Accumulator64& sums, uint64_t left, uint64_t right, bool add_to) {
#pragma unroll
  for (int k = 0; k < kHeadWidth / 16; ++k) {
    multiply_shared<T, kKMajor, kKMajor, kTileRows / 8>(sums, left + k * kStepKMajor, right + k * kStepKMajor,
                                                        add_to || k > 0);
  }
}

/// Half of a left operand: one half of an accumulator's columns, rounded to T.
struct HalfOperand {
  uint32_t parts[kHalfColumns / 16][4];

  template <class T>
  __device__ void pack(const HalfSums& x) {
#pragma unroll
    for (int k = 0; k < kHalfColumns / 16; ++k) pack_left<T, kHalfBlocks>(parts[k], x, k);
  }
  /// sums += this · right, where k indexes the rows of `right`.
  template <class T>
  __device__ void multiply(Accumulator64& sums, uint64_t right) const {
#pragma unroll
    for (int k = 0; k < kHalfColumns / 16; ++k) {
      multiply_held<T, kMnMajor, kHeadWidth / 8>(sums, parts[k], right + k * kStepMnMajor);
    }
  }
  /// Stores it to 16 rows of a shared-memory tile, from `row` on, in the left or the right half of the columns.
  template <class T>
  __device__ void store_shared(const Tile<T, kHeadWidth>& tile, int row, int right) const {
#pragma unroll
    for (int k = 0; k < kHalfColumns / 16; ++k) stmatrix_x4(parts[k], tile, row, right * kHalfColumns / 8 + 2 * k);
  }
  __device__ void fence_registers() {
#pragma unroll
    for (int k = 0; k < kHalfColumns / 16; ++k) cuda::fence_registers(parts[k]);
  }
};

/// Waits for the running products that accumulate into dv and dk.
__device__ inline void finish_key_sums(Accumulator64& dv, HalfOperand (&weights)[2], Accumulator64& dk,
                                       HalfOperand (&gradients)[2]) {
  wgmma_wait();
  fence_registers<kHeadWidth / 8>(dv);
  fence_registers<kHeadWidth / 8>(dk);
#pragma unroll
  for (int right = 0; right < 2; ++right) {
    weights[right].fence_registers();
    gradients[right].fence_registers();
  }
}

/// Initializes the accumulator of q·k for the tile at (q0, k0) with the bias, if possible. Returns false if the product
/// must start from zero. `shift` receives a constant to add to the scores of each half. `place` belongs to the lane's
/// first score.
template <bool kByKeys>
__device__ inline bool begin_scores(const AttentionParams& p, const HeadBias& bias, int q0, int k0,
                                    const ScoreIndex& place, Accumulator64& s, float (&shift)[2]) {
  if (needs_score_transform(p) || !bias.any()) return false;
  const int distance = q0 + bias.offset - k0;
  if (bias.table != nullptr && (distance - kTileRows >= bias.flat_from || distance + kTileRows <= -bias.flat_from)) {
    shift[0] = shift[1] = bias.table[q0 - k0] * p.bias_factor;
    return false;
  }
#pragma unroll
  for (int right = 0; right < 2; ++right) {
    const int further = right * kHalfColumns;
    shift[right] = start_scores<kByKeys, 1, kHalfBlocks>(p, bias, place.query + (kByKeys ? further : 0),
                                                         place.key + (kByKeys ? 0 : further), half_of_sums(s, right));
  }
  return true;
}

/// Sets the weights in the holes of a pattern to zero, for a warp's 16 rows and half of the columns of a tile: queries
/// from q0 on and keys from k0 on, all in one cell of the pattern.
template <bool kByKeys>
__device__ inline void hide_cell(const DeviceMask& mask, int q0, int k0, const ScoreIndex& place, HalfSums& s) {
  if (q0 >= mask.seq_q) return;  // queries past the last have no weights
  const uint2 cell = mask.cells_of(q0, k0, k0 + 1);
  if (cell.x != 0 && cell.y == 0) return;
  if (cell.x == 0) {
    clear<1, kHalfBlocks>(s);
  } else {
    mask_pattern_holes<kByKeys, 1, kHalfBlocks>(mask, place.query, place.key, 0.0F, s);
  }
}

/// Returns kernel_of(work, holes), where both are passed as types. Only the kernels for patterns with holes call mask
/// functions, so only they must save registers around calls.
template <class F>
auto choose_work(ScoreFeatures work, bool holes, const F& kernel_of) {
  return kernel_for(work, [&](auto known) {
    if constexpr (has_general_scores(decltype(known)::value)) {
      if (holes) return kernel_of(known, std::true_type{});
    }
    return kernel_of(known, std::false_type{});
  });
}

}  // namespace lamina::ops::cuda
