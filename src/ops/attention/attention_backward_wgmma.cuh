#pragma once

// What the two gradient kernels on Hopper's matrix units share. As those of attention_backward_mma.cuh both compute the
// weights again, and every sum is made by one warpgroup in one order. A block is one warpgroup with 64 rows of a head
// up to 64 wide, and three blocks share a multiprocessor, so that the matrix units have work while one is between its
// products. What is walked over comes in tiles of 64 rows, two in shared memory, one on its way. Between products the
// scores are looked at in halves of 32 columns: what belongs to single scores then fits the registers, and the products
// with one half run while the other half is at work. 64 x 12 causal heads of 1024 x 64 take 0.96 ms on an H200, where
// the kernels of mma.sync take 1.49 and cuDNN's 1.06: bound by instructions as much as by products, so that everything
// that is the same for a tile, addresses above all, is found once. Left operands that stay (the block's own rows) are
// read from shared memory: held in registers throughout the walk they gained nothing.

#include "lamina/ops/attention/attention_score_gradients.cuh"
#include "lamina/ops/attention/attention_wgmma.cuh"

namespace lamina::ops::cuda {

inline constexpr int kWalkWidth = 64;    // of heads, padded
inline constexpr int kWalkRows = 64;     // of a block, and of a step of its walk
inline constexpr int kBlocksAtOnce = 3;  // on a multiprocessor
inline constexpr int kTileBytes = kWalkRows * kWalkWidth * 2;
inline constexpr int kStageBytes = 2 * kTileBytes;
/// The tiles of both kernels: two that stay, two stages of two; and room to begin where a tile may.
inline constexpr int kWalkBytes = 1024 + 2 * kTileBytes + 2 * kStageBytes;

inline constexpr int kHalfColumns = kWalkRows / 2;
inline constexpr int kHalfBlocks = kHalfColumns / 8;
using WalkSums = Sums<1, kWalkRows / 8>;
using HalfSums = Sums<1, kHalfBlocks>;

/// The left or the right columns of sums.
__device__ inline HalfSums& half_of_sums(WalkSums& sums, int right) {
  return *reinterpret_cast<HalfSums*>(&sums[0][right * kHalfBlocks]);
}

/// Where a thread finds its part of the tiles of a head: 8 columns of every kStep-th row.
template <class T>
class TileSource {
 public:
  /// `head` is its position 0.
  __device__ TileSource(const T* head, int64_t stride, int seq, int width, bool packs)
      : own_(reinterpret_cast<const char*>(head + chunk() * 8)),
        row_bytes_(static_cast<uint32_t>(stride) * 2),
        seq_(seq),
        width_(width),
        packs_(packs) {}
  /// Rows from `position` on, zeros behind the last; there after wait_for_copies() and a barrier.
  __device__ void fill(const Tile<T, kWalkWidth>& tile, int position) const {
    if (!packs_ || width_ < kWalkWidth || position + kWalkRows > seq_) {
      const T* from = reinterpret_cast<const T*>(own_ + at(position)) - chunk() * 8;
      tile.template fill<kWalkRows, kGroupThreads>(from, row_bytes_ / 2, seq_ - position, width_, packs_);
      return;
    }
    const uint32_t to = tile.at(first(), chunk());
#pragma unroll
    for (int row = 0; row < kWalkRows; row += kStep) {
      copy_async(to + row * kWalkWidth * 2, own_ + at(position + first() + row), true);
    }
  }

 private:
  static constexpr int kChunks = kWalkWidth / 8;
  static constexpr int kStep = kGroupThreads / kChunks;
  __device__ static int chunk() { return static_cast<int>(threadIdx.x) % kChunks; }
  __device__ static int first() { return static_cast<int>(threadIdx.x) / kChunks; }
  __device__ uint64_t at(int row) const { return static_cast<uint64_t>(static_cast<uint32_t>(row)) * row_bytes_; }

  const char* own_;
  uint32_t row_bytes_;
  int seq_;
  int width_;
  bool packs_;
};

/// A tile of queries of a head.
struct QueryTile {
  int head;
  int q0;
};

/// The tiles of queries that a block's keys [k0, k1) are seen from, head by head.
struct QueryWalk {
  const AttentionParams& p;
  int k0;
  int k1;
  int q_begin;
  int q_end;
  int head_begin;
  int head_end;
  DeviceMask::Range whole;  // queries that see all of the keys

  __device__ QueryWalk(const AttentionParams& params, int kv_head, int first, int last)
      : p(params),
        k0(first),
        k1(last),
        q_begin(max(params.mask.queries(first).begin, 0) / kWalkRows * kWalkRows),
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
    return seen<kHoles>({tile.head, tile.q0 + kWalkRows});
  }

 private:
  /// `tile`, or the first one behind it that a key is seen from.
  template <bool kHoles>
  __device__ QueryTile seen(QueryTile tile) const {
    while (has(tile)) {
      if (tile.q0 >= q_end) {
        tile = {q_begin < q_end ? tile.head + 1 : head_end, q_begin};
      } else if (kHoles && p.mask.next_keys(tile.q0, min(tile.q0 + kWalkRows, p.seq_q), k0, k1, kWalkRows) >= k1) {
        tile.q0 += kWalkRows;
      } else {
        break;
      }
    }
    return tile;
  }
};

/// sums = left · rightᵀ, added to them where add_to; both tiles' rows lie along k.
template <class T>
__device__ inline void multiply_rows(WalkSums& sums, uint64_t left, uint64_t right, bool add_to) {
#pragma unroll
  for (int k = 0; k < kWalkWidth / 16; ++k) {
    multiply_shared<T, kAlong, kAlong, kWalkRows / 8>(sums, left + k * kStepAlong, right + k * kStepAlong,
                                                      add_to || k > 0);
  }
}

/// Half of a left operand: what half of a product's sums are, rounded.
struct HalfOperand {
  uint32_t parts[kHalfColumns / 16][4];

  template <class T>
  __device__ void pack(const HalfSums& x) {
#pragma unroll
    for (int k = 0; k < kHalfColumns / 16; ++k) pack_left<T, kHalfBlocks>(parts[k], x, k);
  }
  /// sums += this · right, k the right side's row.
  template <class T>
  __device__ void multiply(WalkSums& sums, uint64_t right) const {
#pragma unroll
    for (int k = 0; k < kHalfColumns / 16; ++k) {
      multiply_held<T, kAcross, kWalkWidth / 8>(sums, parts[k], right + k * kStepAcross);
    }
  }
  /// Leaves it behind in 16 rows of a tile from `row` on, in the left or the right columns.
  template <class T>
  __device__ void leave(const Tile<T, kWalkWidth>& tile, int row, int right) const {
#pragma unroll
    for (int k = 0; k < kHalfColumns / 16; ++k) put_matrices(parts[k], tile, row, right * kHalfColumns / 8 + 2 * k);
  }
  __device__ void settle() {
#pragma unroll
    for (int k = 0; k < kHalfColumns / 16; ++k) cuda::settle(parts[k]);
  }
};

/// Waits for the products of a tile that dv and dk are sums of.
__device__ inline void finish_key_sums(WalkSums& dv, HalfOperand (&weights)[2], WalkSums& dk,
                                       HalfOperand (&gradients)[2]) {
  wait_for_products();
  settle<kWalkWidth / 8>(dv);
  settle<kWalkWidth / 8>(dk);
#pragma unroll
  for (int right = 0; right < 2; ++right) {
    weights[right].settle();
    gradients[right].settle();
  }
}

/// What the q·k of a tile with queries from q0 and keys from k0 on are added to: the bias, if it can be; false where
/// they are added to nothing. `shift` is what the scores of each half have to be raised by beside it. `place` is that
/// of the lane's first score.
template <bool kByKeys>
__device__ inline bool begin_scores(const AttentionParams& p, const HeadBias& bias, int q0, int k0,
                                    const ScorePlace& place, WalkSums& s, float (&shift)[2]) {
  if (is_bent(p) || !bias.any()) return false;
  const int distance = q0 + bias.offset - k0;
  if (bias.table != nullptr && (distance - kWalkRows >= bias.flat_from || distance + kWalkRows <= -bias.flat_from)) {
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

/// Weights of 0 in the holes of a pattern, of a warp's 16 rows and half of a tile's columns: queries from q0 and keys
/// from k0 on, all of one cell.
template <bool kByKeys>
__device__ inline void hide_cell(const DeviceMask& mask, int q0, int k0, const ScorePlace& place, HalfSums& s) {
  if (q0 >= mask.seq_q) return;  // those behind the last have no weights
  const uint2 cell = mask.cells_of(q0, k0, k0 + 1);
  if (cell.x != 0 && cell.y == 0) return;
  if (cell.x == 0) {
    clear<1, kHalfBlocks>(s);
  } else {
    hide_holes<kByKeys, 1, kHalfBlocks>(mask, place.query, place.key, 0.0F, s);
  }
}

/// kernel_of(work, holes), both as types. Calls are made only for patterns with holes; where there can be none, nothing
/// has to be saved for them.
template <class F>
auto choose_work(ScoreWork work, bool holes, const F& kernel_of) {
  return kernel_for(work, [&](auto known) {
    if constexpr (shapes(decltype(known)::value)) {
      if (holes) return kernel_of(known, std::true_type{});
    }
    return kernel_of(known, std::false_type{});
  });
}

}  // namespace lamina::ops::cuda
