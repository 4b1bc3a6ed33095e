#pragma once

// The row-stream kernel (row_stream_cuda.cu): its sizes, its arguments, and the part of x that a lane holds.

#include "lamina/ops/activation/gated_activation.cuh"
#include "lamina/ops/linear/fused/few_rows_cuda.h"
#include "lamina/ops/linear/fused/row_stream_cuda.h"
#include "lamina/tensor/cuda/l2_policy_loads.cuh"
#include "lamina/tensor/cuda/prefetch.cuh"

namespace lamina::ops::cuda::row_stream {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kPiece = kWarp * 16;    // bytes of a row that a warp reads at once
constexpr int kMostParts = 24;        // most warps per row
constexpr int kMostNormedParts = 16;  // most warps per row with a norm
constexpr int kNormedParts = 8;       // most warps per row with a norm and several rows of x
// Warps per block for one row of x, if `parts` allows; leaves room for attention on the same SM.
constexpr int kWarps = 16;
// Bytes of x, if there are several rows: beyond this a separate norm kernel is faster.
constexpr int kNormedBytes = 4 << 10;
constexpr int kAddedAtOnce = 4;  // parts of a residual that are loaded together, for one row of x
constexpr int kMostAdded = 8;
// Bytes of the weight that are prefetched per SM before the wait for the previous kernel.
constexpr int kPrefetchBytes = 32 << 10;
constexpr int kSumsBytes = 40 << 10;  // bytes of sums per block, at most
constexpr int kWideBytes = 2 << 10;   // weight rows at least this wide are read with the evict-first policy
constexpr int kSharedPercent = 58;    // shared memory carve-out: 132 KB, for attention on the same SM

/// Tuning for weight rows of up to kParts pieces and `kRows` rows of x. A warp multiplies kTogether weight rows at a
/// time and has kDepth times as many in flight in registers, enough to saturate memory bandwidth.
template <int kParts, int kRows>
struct Shape {
  static constexpr int kThreads = kParts * kWarp;
  static constexpr int kBlocksPerSm = kParts <= 8 ? 2 : 1;  // resident blocks per SM
  static constexpr int kTogether = 4;
  static constexpr int kDepth = kParts > 16 && kRows > 1 ? 1 : 2;
  // How many of these are loaded before x arrives; few, because registers are scarce.
  static constexpr int kBefore = kRows == 1 ? 1 : kDepth;
};
/// Rows of x per block, if x has several rows.
template <int kParts>
constexpr int kSeveral = kParts > 16 ? 2 : 4;

struct StreamedNorm {
  bool there;
  bool is_layer_norm;     ///< layer norm, else RMS norm
  const float* residual;  ///< [added, rows, in]
  int added;              ///< number of parts of the residual; 0 without one
  float* h;               ///< [rows, in]: written if there is a residual
  const float* scale;     ///< [in], or null
  const float* bias;      ///< [in], or null
  float offset;           ///< added to the norm's scale
  float eps;
  float share;  ///< 1 / number of columns
};

struct Streamed {
  const float* x;      ///< [rows, in]
  const char* weight;  ///< [out or 2·out, in]
  const float* bias;   ///< [out or 2·out], or null
  float* y;            ///< [rows, out]
  float* z;            ///< [rows, out], or null
  int row_bytes;       ///< bytes between consecutive weight rows
  int bytes;           ///< bytes per weight row
  int in, rows, out;
  int tile_bits;  ///< 1 if there is a gate and an up per output, else 0
  int next;       ///< bytes between the rows of consecutive outputs
  int second;     ///< bytes between gate and up of an output
  int parts;      ///< number of warps that divide the columns of a row
  int teams;      ///< number of teams of `parts` warps each
  int most_rows;  ///< maximum number of weight rows per block
  int ahead;      ///< number of weight rows prefetched before the wait for the previous kernel
  Activation activation;
  Gate gate;
  GateUnit unit;
  StreamedNorm norm;

  __device__ int first_output(unsigned block) const {
    return static_cast<int>(static_cast<int64_t>(out) * block / gridDim.x);
  }
  __device__ int bias_at(int output, int tile) const {
    return output * (next / row_bytes) + tile * (second / row_bytes);
  }
  /// Byte offset of weight row `row`, counted from the block's first output.
  __device__ int offset(int row) const { return (row >> tile_bits) * next + (row & tile_bits) * second; }
};

/// Sums each of kCount values over all lanes. Sum n ends up in the lanes whose leading bits are n. Butterfly exchange:
/// of two lanes that differ in one bit, each sends the half of the values that the other keeps.
template <int kCount, int kStep = kWarp / 2>
__device__ inline float spread_sums(const float (&values)[kCount], int lane) {
  if constexpr (kCount == 1) {
    float sum = values[0];
#pragma unroll
    for (int step = kStep; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    return sum;
  } else {
    const bool upper = (lane & kStep) != 0;
    float half[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float given = upper ? values[i] : values[i + kCount / 2];
      const float kept = upper ? values[i + kCount / 2] : values[i];
      half[i] = kept + __shfl_xor_sync(kAllLanes, given, kStep);
    }
    return spread_sums<kCount / 2, kStep / 2>(half, lane);
  }
}

/// A lane's columns of the block's rows of x. If there is a residual, kAdded of its parts are loaded together.
template <class W, int kRows>
struct LaneOfX {
  static constexpr int kAdded = kRows == 1 ? kAddedAtOnce : 1;
  static constexpr int kSize = Pack<W>::kSize;
  float values[kRows][kSize];
  float others[kAdded][kRows][kSize];  ///< parts of the residual
  float scale[kSize];
  float bias[kSize];

  __device__ static void take(const float* from, bool there, float (&to)[kSize]) {
#pragma unroll
    for (int i = 0; i < kSize; i += 4) {
      const uint4 four = load_words(from + i, there);
      to[i] = __uint_as_float(four.x), to[i + 1] = __uint_as_float(four.y);
      to[i + 2] = __uint_as_float(four.z), to[i + 3] = __uint_as_float(four.w);
    }
  }
  __device__ static const float* part_of(const Streamed& p, int part) {
    return p.norm.residual + static_cast<int64_t>(part) * p.rows * p.in;
  }
  /// Loads rows first, first + 1, …, of which `count` exist; count is 0 for a lane without columns.
  __device__ LaneOfX(const Streamed& p, bool normed, int column, int first, int count) {
    const int64_t at = static_cast<int64_t>(first) * p.in + column;
#pragma unroll
    for (int r = 0; r < kRows; ++r) take(p.x + at + r * p.in, r < count, values[r]);
    if (!normed) return;
#pragma unroll
    for (int a = 0; a < kAdded; ++a) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) take(part_of(p, a) + at + r * p.in, r < count && a < p.norm.added, others[a][r]);
    }
    if (p.norm.scale != nullptr) take(p.norm.scale + column, count > 0, scale);
  }
  /// Loads the norm's bias. Called after the residual is added, because registers are scarce before.
  __device__ void take_bias(const Streamed& p, int column, bool there) {
    if (p.norm.bias != nullptr) take(p.norm.bias + column, there, bias);
  }
  __device__ static void fetch_parameters(const Streamed& p, int column) {
#pragma unroll
    for (int i = 0; i < kSize; i += 8) {  // 32 bytes
      if (p.norm.scale != nullptr) prefetch_l2(p.norm.scale + column + i);
      if (p.norm.bias != nullptr) prefetch_l2(p.norm.bias + column + i);
    }
  }
  __device__ void add_residual(const Streamed& p, int column, int first, int count, bool writes) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t at = static_cast<int64_t>(first + r) * p.in + column;
#pragma unroll
      for (int a = 0; a < kAdded; ++a) {
#pragma unroll
        for (int i = 0; i < kSize; ++i) values[r][i] += others[a][r][i];
      }
#pragma unroll 1
      for (int a = kAdded; a < p.norm.added; ++a) {
        take(part_of(p, a) + at, r < count, others[0][r]);
#pragma unroll
        for (int i = 0; i < kSize; ++i) values[r][i] += others[0][r][i];
      }
      if (!writes || r >= count) continue;
      float* to = p.norm.h + at;
#pragma unroll
      for (int i = 0; i < kSize; i += 4) {
        *reinterpret_cast<float4*>(to + i) =
            make_float4(values[r][i], values[r][i + 1], values[r][i + 2], values[r][i + 3]);
      }
    }
  }
  /// Normalizes the rows. All threads must call it. A layer norm takes two block-wide sums. For an RMS norm, the sums
  /// of squares per part and row are left in `sums` (shared memory); the epilogue applies the factor to the results.
  __device__ void normalize(const Streamed& p, int part, int team, int lane, int count, float (*sums)[kRows]) {
    const bool writes = lane == 0 && team == 0;
    const float width = static_cast<float>(p.in);
    float by[kRows];
    if (p.norm.is_layer_norm) {
#pragma unroll 1
      for (int turn = 0; turn < 2; ++turn) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          float sum = 0.0F;
#pragma unroll
          for (int i = 0; i < kSize; ++i) sum += turn == 0 ? values[r][i] : values[r][i] * values[r][i];
          sum = warp_sum(sum);
          if (writes) sums[part][r] = sum;
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float mean = warp_sum(lane < p.parts ? sums[lane][r] : 0.0F) / width;
          by[r] = 1.0F / sqrtf(mean + p.norm.eps);
#pragma unroll
          for (int i = 0; i < kSize; ++i) values[r][i] -= turn == 0 && r < count ? mean : 0.0F;
        }
        __syncthreads();
      }
    } else {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float sum = 0.0F;
#pragma unroll
        for (int i = 0; i < kSize; ++i) sum = fmaf(values[r][i], values[r][i], sum);
        sum = warp_sum(sum);
        if (writes) sums[part][r] = sum;
        by[r] = 1.0F;
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        values[r][i] *= by[r];
        if (p.norm.scale != nullptr) values[r][i] *= scale[i] + p.norm.offset;
        if (p.norm.bias != nullptr) values[r][i] += bias[i];
      }
    }
  }
};

}  // namespace lamina::ops::cuda::row_stream
