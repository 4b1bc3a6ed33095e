#pragma once

// Products of at most eight rows of x with a quantized weight (weight_stream_cuda.cu): the arguments, the layout of
// shared memory, and the work of one warp.

#include "lamina/ops/activation/gated_activation.cuh"
#include "lamina/ops/linear/quantized/quantized_block.cuh"
#include "lamina/tensor/cuda/async_copy.cuh"
#include "lamina/tensor/cuda/l2_policy_loads.cuh"
#include "lamina/tensor/cuda/prefetch.cuh"
#include "lamina/tensor/cuda/tma.cuh"

namespace lamina::ops::cuda::weight_stream {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kMostWarps = 16;   // maximum number of warps per block
constexpr int kMostRows = 8;     // maximum number of rows of x: one tensor-core tile
constexpr int kMostStages = 12;  // maximum number of stages in flight per warp
constexpr int kScaleBytes = kQuantizedRows * 2;
constexpr int kBarrierBytes = kMostWarps * kMostStages * 8;

struct Params {
  const void* x;          ///< [rows, in]
  const uint8_t* weight;  ///< groups of 16 weight rows, see QuantizedWeight
  const float* bias;      ///< [out or 2·out], or null
  void* y;                ///< [rows, out]
  int64_t group_bytes;
  int scale_bytes;
  int in, out, rows;
  int blocks;             ///< number of blocks of 32 columns
  int groups;             ///< number of groups of 16 outputs
  int grid;               ///< number of thread blocks
  int most_groups;        ///< maximum number of groups per thread block
  int tiles;              ///< 2 for gated units (gates and ups), else 1
  int second;             ///< number of groups from the gates to the ups
  int parts;              ///< number of warps that divide the columns of a group
  int teams;              ///< number of teams of `parts` warps each
  int stages;             ///< number of stages of a warp's ring
  bool starts_next_late;  ///< for a quantized weight, see quantized_block.cuh
  Activation activation;
  Gate gate;
  GateUnit unit;
  // If `normed`, the product uses the RMS norm of x + residual instead of x.
  bool normed;
  int added;             ///< number of parts of the residual; 0 without one
  const void* residual;  ///< [added, rows, in]
  void* h;               ///< [rows, in]: written if there is a residual
  const float* scale;    ///< [in], or null
  float offset;          ///< added to the norm's scale
  float eps;
};

/// The blocks of 32 columns that a warp copies and multiplies in one step. There are at most eight: with one row of x,
/// the sums of block i form column i of a tensor-core tile.
template <QuantizedFormat kFormat>
struct Stage {
  static constexpr int kBlocks = kFormat == QuantizedFormat::q8 ? 4 : 8;  ///< number of blocks of 32 columns
  static constexpr int kBlock = kQuantizedRows * kQuantizedBlock / (kFormat == QuantizedFormat::q8 ? 1 : 2);
  static constexpr int kScales = kBlocks * kScaleBytes;  ///< bytes of the scales, which come before the values
  static constexpr int kBytes = kScales + kBlocks * kBlock;
};

/// Scale of a block of x, and the start of its sums, which corrects for the offset of the unsigned weights.
struct Factor {
  float scale;
  int correct;
};

/// Byte offsets of the arrays in the shared memory of a block. kRows is 1 or kMostRows.
template <QuantizedFormat kFormat, int kRows>
struct SharedLayout {
  int numbers;  ///< i8 [rows, pitch]: x
  int pitch;    ///< bytes per row, padded so that rows start in different banks
  int factors;  ///< Factor [blocks, kRows]
  int sums;     ///< float [parts, most_groups · tiles, kRows, 16]
  int squares;  ///< float [warps, kRows]
  int end;

  __host__ __device__ explicit SharedLayout(const Params& p) {
    const int warps = p.parts * p.teams;
    numbers = kBarrierBytes + warps * p.stages * Stage<kFormat>::kBytes;
    pitch = p.blocks * kQuantizedBlock + 16;
    factors = numbers + p.rows * pitch;
    sums = factors + p.blocks * kRows * static_cast<int>(sizeof(Factor));
    squares = sums + p.parts * p.most_groups * p.tiles * kRows * kQuantizedRows * 4;
    end = squares + warps * kRows * 4;
  }
};

/// Position of a warp in its work: all its columns of one unit, then those of its team's next unit. A unit is a group
/// of 16 weight rows; in gated products, groups of gates and of ups alternate.
struct Cursor {
  int unit, chunk;

  __device__ void next(const Params& p, int chunks) {
    if (++chunk < chunks) return;
    chunk = 0;
    unit += p.teams;
  }
};

/// A warp's share of the product: its columns of every teams-th unit of the block. Each sum is kept in four parts, one
/// per pair of blocks within a stage (with one row of x, four lanes have one part each). The parts are added at the end
/// of a unit. So the result of a row does not depend on the number of rows.
template <QuantizedFormat kFormat, int kRows>
class WarpStream {
  using S = Stage<kFormat>;
  static constexpr int kParts = kRows == 1 ? 1 : 4;
  using Sums = float[kParts][4];

 public:
  __device__ WarpStream(const Params& p, unsigned char* memory, int first_group, int groups)
      : p_(p),
        lane_(static_cast<int>(threadIdx.x) % kWarp),
        part_(static_cast<int>(threadIdx.x) / kWarp % p.parts),
        team_(static_cast<int>(threadIdx.x) / kWarp / p.parts),
        begin_(part_ * p.blocks / p.parts),
        blocks_((part_ + 1) * p.blocks / p.parts - begin_),
        chunks_((blocks_ + S::kBlocks - 1) / S::kBlocks),
        first_group_(first_group),
        ahead_{team_, 0} {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int units = groups * p.tiles;
    barriers_ = shared_address(memory) + warp * kMostStages * 8;
    ring_ = memory + kBarrierBytes + warp * p.stages * S::kBytes;
    total_ = left_ = units > team_ ? (units - team_ + p.teams - 1) / p.teams * chunks_ : 0;
    if (lane_ == 0) {
      for (int n = 0; n < p.stages; ++n) barrier_init(barriers_ + n * 8, 1);
      fence_barrier_init();
      for (int n = 0; n < p.stages && left_ > 0; ++n) copy_next(n);
      prefetch_more();
    }
    __syncwarp();
  }

  /// Multiplies all units and writes the sums to shared memory. x must already be in shared memory.
  __device__ void run(const unsigned char* memory, const SharedLayout<kFormat, kRows>& at, float* sums) {
    const int row = kRows == 1 ? 0 : min(lane_ / 4, p_.rows - 1);
    const auto* numbers =
        reinterpret_cast<const uint32_t*>(memory + at.numbers + row * at.pitch) + begin_ * 8 + lane_ % 4;
    const auto* factors = reinterpret_cast<const Factor*>(memory + at.factors) + begin_ * kRows;
    Cursor cursor{team_, 0};
    Sums total = {};
    int slot = 0;
    uint32_t parity = 0;
#pragma unroll 1
    for (int n = 0; n < total_; ++n) {
      barrier_wait(barriers_ + slot * 8, parity);
      const int first = cursor.chunk * S::kBlocks;
      add_stage(ring_ + slot * S::kBytes, min(S::kBlocks, blocks_ - first), numbers + first * 8,
                factors + first * kRows, total);
      __syncwarp();
      if (lane_ == 0 && left_ > 0) copy_next(slot);
      if (++slot == p_.stages) slot = 0, parity ^= 1;
      if (cursor.chunk == chunks_ - 1) put(cursor.unit, sums, total);
      cursor.next(p_, chunks_);
    }
  }

 private:
  /// Address of a unit's weights. In gated products, groups of gates and of ups alternate.
  __device__ const uint8_t* unit_data(int unit) const {
    const int group = p_.tiles == 1 ? unit : unit / 2 + unit % 2 * p_.second;
    return p_.weight + static_cast<int64_t>(first_group_ + group) * p_.group_bytes;
  }
  /// Starts the copy of the next stage that was not yet requested. Only one lane calls it.
  __device__ void copy_next(int slot) {
    const int first = ahead_.chunk * S::kBlocks;
    const int count = min(S::kBlocks, blocks_ - first);
    const uint8_t* group = unit_data(ahead_.unit);
    const uint32_t to = shared_address(ring_ + slot * S::kBytes);
    const uint32_t barrier = barriers_ + slot * 8;
    const uint64_t policy = evict_first_policy();
    barrier_expect(barrier, count * (kScaleBytes + S::kBlock));
    bulk_copy(to + S::kScales, group + p_.scale_bytes + (begin_ + first) * S::kBlock, count * S::kBlock, barrier,
              policy);
    bulk_copy(to, group + (begin_ + first) * kScaleBytes, count * kScaleBytes, barrier, policy);
    ahead_.next(p_, chunks_);
    --left_;
  }
  /// Prefetches into the L2 cache as many stages as the ring holds. Their copies cannot start before x has arrived.
  __device__ void prefetch_more() const {
    Cursor cursor = ahead_;
#pragma unroll 1
    for (int n = 0; n < min(p_.stages, left_); ++n) {
      const int first = cursor.chunk * S::kBlocks;
      const int count = min(S::kBlocks, blocks_ - first);
      prefetch_l2_bulk(unit_data(cursor.unit) + p_.scale_bytes + (begin_ + first) * S::kBlock, count * S::kBlock);
      cursor.next(p_, chunks_);
    }
  }
  __device__ static void load_weights(const unsigned char* values, int block, uint32_t (&w)[4]) {
    const uint2 first = *reinterpret_cast<const uint2*>(values + block * S::kBlock);
    uint2 second = make_uint2(0, 0);
    if constexpr (kFormat == QuantizedFormat::q8) {
      second = *reinterpret_cast<const uint2*>(values + block * S::kBlock + S::kBlock / 2);
    }
    unpack_numbers<kFormat>(first, second, w);
  }
  /// Adds a stage for one row of x. The right operand of block i has x in column i and zeros elsewhere. So the sums of
  /// all blocks accumulate in one tile, and each lane scales the sums of two blocks.
  __device__ void add_stage_of_row(const unsigned char* stage, int count, const uint32_t* numbers,
                                   const Factor* factors, Sums& total) const {
    const int g = lane_ / 4;
    const int pair = lane_ % 4;
    const unsigned char* values = stage + S::kScales + pair * kQuantizedRows * 4 + g * 8;
    const uint32_t x0 = numbers[min(g, count - 1) * 8];
    const uint32_t x1 = numbers[min(g, count - 1) * 8 + 4];
    const Factor factor[2] = {factors[min(2 * pair, count - 1)], factors[min(2 * pair + 1, count - 1)]};
    int sums[4] = {factor[0].correct, factor[1].correct, factor[0].correct, factor[1].correct};
#pragma unroll
    for (int i = 0; i < S::kBlocks; ++i) {
      if (i >= count) break;
      uint32_t w[4];
      load_weights(values, i, w);
      multiply_block(w, g == i ? x0 : 0, g == i ? x1 : 0, sums);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (2 * pair + i >= count) break;
      const auto both = *reinterpret_cast<const __half2*>(stage + (2 * pair + i) * kScaleBytes + g * 4);
      const float2 scale = __half22float2(both);
      total[0][0] = fmaf(static_cast<float>(sums[i]), scale.x * factor[i].scale, total[0][0]);
      total[0][2] = fmaf(static_cast<float>(sums[2 + i]), scale.y * factor[i].scale, total[0][2]);
    }
  }
  __device__ void add_stage(const unsigned char* stage, int count, const uint32_t* numbers, const Factor* factors,
                            Sums& total) const {
    if constexpr (kRows == 1) return add_stage_of_row(stage, count, numbers, factors, total);
    const int g = lane_ / 4;
    const int pair = lane_ % 4;
    const unsigned char* values = stage + S::kScales + pair * kQuantizedRows * 4 + g * 8;
#pragma unroll
    for (int i = 0; i < S::kBlocks; ++i) {
      if (i >= count) break;
      uint32_t w[4];
      load_weights(values, i, w);
      const float2 scale = __half22float2(*reinterpret_cast<const __half2*>(stage + i * kScaleBytes + g * 4));
      const int4 two = *reinterpret_cast<const int4*>(factors + i * kRows + pair * 2);
      add_block(w, numbers[i * 8], numbers[i * 8 + 4], make_int2(two.y, two.w), scale,
                make_float2(__int_as_float(two.x), __int_as_float(two.z)), total[i / 2 % kParts]);
    }
  }
  __device__ void put(int unit, float* sums, Sums& total) const {
    float* to = sums + (part_ * p_.most_groups * p_.tiles + unit) * kRows * kQuantizedRows + lane_ / 4 * 2;
    const int pair = lane_ % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float sum = total[0][i];
      if constexpr (kRows == 1) {
        sum += __shfl_xor_sync(kAllLanes, sum, 1);
        sum += __shfl_xor_sync(kAllLanes, sum, 2);
        if (pair == 0 && i % 2 == 0) to[i / 2] = sum;
      } else {
        sum = (sum + total[1][i]) + (total[2][i] + total[3][i]);
        const int row = pair * 2 + i % 2;
        if (row < p_.rows) to[row * kQuantizedRows + i / 2] = sum;
      }
#pragma unroll
      for (int n = 0; n < kParts; ++n) total[n][i] = 0.0F;
    }
  }

  const Params& p_;
  const int lane_, part_, team_;
  const int begin_, blocks_, chunks_;  // in blocks of 32 columns; chunks_ in stages
  const int first_group_;
  Cursor ahead_;  // position of the next stage to copy
  int left_;      // number of stages still to copy
  int total_;     // number of stages
  uint32_t barriers_;
  unsigned char* ring_;
};

}  // namespace lamina::ops::cuda::weight_stream
