#pragma once

// The backward scan of one chunk: shared memory, loads, stores, and the work of a lane.

#include "lamina/ops/ssm/selective_scan.cuh"

namespace lamina::ops::cuda::scan_backward {

using lamina::cuda::fast_exp2;
using lamina::cuda::kLn2;
using lamina::cuda::kLog2E;

constexpr int kChunk = static_cast<int>(kScanChunk);
constexpr int kSub = 8;  // positions whose states are in registers
constexpr int kWarps = kScanThreads / lamina::cuda::kWarp;

template <class T>
struct Back {
  const T* dy;
  const float* dlast;   // [batch, channels, n], or null
  const float* start;   // [batch, segments, n, channels]: gradient after each segment, or null if there is one segment
  const float* states;  // [batch, chunks, n, channels]
  float* ends;          // written by ends_kernel
  float* totals;
  T *du, *ddelta, *dz;     // dz may be null
  float *da, *dd, *dbias;  // [batch · segments, (n,) channels]: partial sums
  float *db, *dc;          // [channel blocks, batch, seq, n]: partial sums
  float* dinitial;         // [batch, channels, n], or null
};

/// The gradient of c · h + d · u, i.e. of y before the gate.
template <class T>
__device__ float ungated(const ScanInputs<T>& in, const T* dy, int64_t at) {
  const float value = to_float(dy[at]);
  return in.z != nullptr ? value * silu_for<T>(to_float(in.z[at])) : value;
}

/// The arrays in shared memory.
struct BackwardMemory {
  float *steps, *us, *dys, *sums;  // [chunk, channels]; the gradients of Δ and u overwrite steps and dys
  float *b, *c;                    // [chunk, padded]
  float* kept;                     // [chunk / kSub, threads, kPerLane]: every eighth state
  float* warps;                    // [kWarps, kSub, 2, padded]: db and dc of eight positions

  __device__ BackwardMemory(const ScanShape& shape, float* memory) {
    const int wide = kChunk * shape.block_channels();
    const int mixed = kChunk * shape.padded();
    kept = memory;
    steps = kept + kChunk / kSub * kScanThreads * kPerLane;
    us = steps + wide;
    dys = us + wide;
    sums = dys + wide;
    b = sums + wide;
    c = b + mixed;
    warps = c + mixed;
  }
  static size_t bytes(const ScanShape& shape) {
    return sizeof(float) * (kChunk / kSub * kScanThreads * kPerLane + 4 * kChunk * shape.block_channels() +
                            2 * kChunk * shape.padded() + kWarps * kSub * 2 * shape.padded());
  }
};

/// Loads the inputs of a chunk. Missing positions and channels become zeros, which have no effect.
template <class T>
__device__ void load_chunk(const ScanShape& shape, const ScanInputs<T>& in, const Back<T>& back,
                           const BackwardMemory& m, int64_t batch, int64_t first, int64_t t0, int count) {
  const int channels = shape.block_channels();
  for (int i = threadIdx.x; i < kChunk * channels; i += kScanThreads) {
    const int64_t ch = first + i % channels;
    float step = 0;
    float u = 0;
    float dy = 0;
    if (ch < shape.channels && i / channels < count) {
      const int64_t at = (batch * shape.seq + t0 + i / channels) * shape.channels + ch;
      step = in.raw_step(at, ch);
      if (in.with_softplus) step = softplus(step);
      u = to_float(in.u[at]);
      dy = ungated(in, back.dy, at);
    }
    m.steps[i] = step;
    m.us[i] = u;
    m.dys[i] = dy;
  }
  const int padded = shape.padded();
  for (int i = threadIdx.x; i < kChunk * padded; i += kScanThreads) {
    const bool real = i / padded < count && i % padded < shape.n;
    const int64_t at = (batch * shape.seq + t0 + i / padded) * shape.n + i % padded;
    m.b[i] = real ? in.b[at] : 0.0F;
    m.c[i] = real ? in.c[at] : 0.0F;
  }
}

/// Writes the gradients of a chunk's inputs from shared memory. A thread handles only one channel and adds to its part
/// of ddelta_bias.
template <class T>
__device__ void store_chunk(const ScanShape& shape, const ScanInputs<T>& in, const Back<T>& back,
                            const BackwardMemory& m, int64_t batch, int64_t first, int64_t t0, int count,
                            float& dbias) {
  const int channels = shape.block_channels();
  const int64_t ch = first + threadIdx.x % channels;
  if (ch >= shape.channels) return;
  for (int i = threadIdx.x; i < count * channels; i += kScanThreads) {
    const int64_t at = (batch * shape.seq + t0 + i / channels) * shape.channels + ch;
    float dstep = m.steps[i];
    if (in.with_softplus) dstep *= sigmoid(in.raw_step(at, ch));
    dbias += dstep;
    back.ddelta[at] = from_float<T>(dstep);
    back.du[at] = from_float<T>(m.dys[i]);
    if (in.z != nullptr) {
      float sum = m.sums[i];
      if (in.d != nullptr) sum = fmaf(in.d[ch], m.us[i], sum);
      back.dz[at] = from_float<T>(to_float(back.dy[at]) * sum * silu_slope_for<T>(to_float(in.z[at])));
    }
  }
}

/// Sums 2 · kPerLane values over the lanes of a warp that differ only in their channel (lane bits from `group` on). In
/// each step two lanes exchange halves of their values. Afterwards values[0 … held) are the sums of values `place`,
/// `place` + 1, ….
__device__ inline void sum_channels(float (&values)[2 * kPerLane], int group, int& place, int& held) {
  const int lane = threadIdx.x % lamina::cuda::kWarp;
  place = 0;
  held = 2 * kPerLane;
  int step = lamina::cuda::kWarp / 2;
#pragma unroll
  for (int half = kPerLane; half >= 1; half /= 2, step /= 2) {
    if (step < group) break;
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int k = 0; k < half; ++k) {
      const float sent = upper ? values[k] : values[k + half];
      const float kept = upper ? values[k + half] : values[k];
      values[k] = kept + __shfl_xor_sync(lamina::cuda::kAllLanes, sent, step);
    }
    if (upper) place += half;
    held = half;
  }
  // kSmallestGroup lanes per channel leave at most three bits for channels; the three exchanges cover them.
}

struct Lane {
  int mine, part, warp;
  float rate[kPerLane];  // a · log2(e)
  float dh[kPerLane], da[kPerLane];
  float dd, skip;
};

/// A lane's state elements of one position, loaded with one access.
struct LaneNumbers {
  float values[kPerLane];
  __device__ explicit LaneNumbers(const float* from) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
  }
  __device__ float operator[](int k) const { return values[k]; }
};
static_assert(kPerLane == 4);

/// Runs backwards through kSub positions of the chunk from t0 on; starts from the state before them.
__device__ inline void sub_back(const ScanShape& shape, const BackwardMemory& m, int t0, bool with_sums, Lane& lane) {
  const int channels = shape.block_channels();
  const int padded = shape.padded();
  float before[kSub + 1][kPerLane];
  float decays[kSub][kPerLane];
  const LaneNumbers kept(m.kept + (t0 / kSub * kScanThreads + threadIdx.x) * kPerLane);
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) before[0][k] = kept[k];
#pragma unroll
  for (int r = 0; r < kSub; ++r) {
    const int at = (t0 + r) * channels + lane.mine;
    const float step = m.steps[at];
    const float push = step * m.us[at];
    const LaneNumbers b(m.b + (t0 + r) * padded + lane.part * kPerLane);
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      decays[r][k] = fast_exp2(step * lane.rate[k]);
      before[r + 1][k] = fmaf(decays[r][k], before[r][k], push * b[k]);
    }
  }
#pragma unroll
  for (int r = kSub - 1; r >= 0; --r) {
    const int at = (t0 + r) * channels + lane.mine;
    const float step = m.steps[at];
    const float u = m.us[at];
    const float dy = m.dys[at];
    const float push = step * u;
    const LaneNumbers b(m.b + (t0 + r) * padded + lane.part * kPerLane);
    const LaneNumbers c(m.c + (t0 + r) * padded + lane.part * kPerLane);
    float mixed[2 * kPerLane];  // db, then dc
    float pushed = 0;
    float dstep = 0;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const float g = fmaf(dy, c[k], lane.dh[k]);
      mixed[k] = g * push;
      mixed[kPerLane + k] = dy * before[r + 1][k];
      pushed = fmaf(g, b[k], pushed);
      sum = fmaf(before[r + 1][k], c[k], sum);
      const float carried = g * decays[r][k];
      lane.dh[k] = carried;
      const float bent = carried * before[r][k];
      dstep = fmaf(bent, lane.rate[k], dstep);
      lane.da[k] = fmaf(bent, step, lane.da[k]);
    }
    pushed = group_sum(pushed, shape.group);
    dstep = group_sum(dstep, shape.group);
    if (with_sums) sum = group_sum(sum, shape.group);
    __syncwarp();  // the other lanes of the group have read the values that are overwritten now
    if (lane.part == 0) {
      m.dys[at] = fmaf(step, pushed, lane.skip * dy);
      m.steps[at] = fmaf(u, pushed, dstep * kLn2);
      m.sums[at] = sum;
      lane.dd = fmaf(dy, u, lane.dd);
    }
    int place = 0;
    int held = 0;
    sum_channels(mixed, shape.group, place, held);
    float* to = m.warps + (lane.warp * kSub + r) * 2 * padded;
#pragma unroll
    for (int k = 0; k < 2 * kPerLane; ++k) {
      if (k >= held) break;
      const int number = place + k;
      to[number / kPerLane * padded + lane.part * kPerLane + number % kPerLane] = mixed[k];
    }
  }
}

/// Sums db and dc of eight positions over the warps and adds them to this block's partial sum.
template <class T>
__device__ void store_mixed(const ScanShape& shape, const Back<T>& back, const BackwardMemory& m, int64_t batch,
                            int64_t t0, int count) {
  const int padded = shape.padded();
  for (int i = threadIdx.x; i < count * 2 * padded; i += kScanThreads) {
    const int k = i % padded;
    if (k >= shape.n) continue;
    const int row = i / padded;  // position · 2 + (0 for db, 1 for dc)
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += m.warps[(warp * kSub * 2 + row) * padded + k];
    float* to = row % 2 == 0 ? back.db : back.dc;
    to[((blockIdx.x * shape.batch + batch) * shape.seq + t0 + row / 2) * shape.n + k] = sum;
  }
}

}  // namespace lamina::ops::cuda::scan_backward
