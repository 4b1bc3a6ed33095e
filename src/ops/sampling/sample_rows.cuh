#pragma once

// Shared by the GPU kernels of sample_rows: arguments, options of a row, adjusted logits, and sums over a block.
// Adjusted logits include bias and penalties.

#include "lamina/ops/sampling/sample_rows_kernel.h"
#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::ops::cuda::sampling {

using namespace lamina::cuda;  // NOLINT: kernel helpers

/// Probabilities are integers in units of 2^-40, so that their sums do not depend on the order.
using Mass = unsigned long long;
constexpr float kMassUnit = 0x1p40F;

constexpr int kSegment = 1024;  // ids that one warp processes in the first kernel
constexpr int kChooseThreads = 1024;
constexpr Mass kNanRank = ~Mass{0};

/// Statistics of one segment of a row, written by the first kernel.
struct Segment {
  Mass rank;      ///< rank_of() the allowed token with the largest adjusted logit; 0: none allowed; kNanRank: NaN found
  float raw_max;  ///< maximum of the model's logits
  float raw_sum;  ///< Σ exp(logit − raw_max)
  float max;      ///< maximum of the adjusted logits of allowed tokens
  float sum;      ///< Σ exp((adjusted − max) / temperature)
};

struct Params {
  const void* logits;  ///< [rows, stride]
  int64_t stride;
  int vocab;  ///< ids that may be sampled
  int segments;
  int top;  ///< number of top log-probabilities
  const float *temperature, *top_p, *min_p, *typical_p, *repetition, *presence, *frequency;  ///< [rows], or null
  const int32_t* top_k;
  const int64_t *seed, *drawn;
  const int32_t* counts;  ///< [rows, stride], or null
  const float* bias;
  const int32_t* mask;  ///< [rows, mask_stride], or null
  int64_t mask_stride;
  Segment* surveys;  ///< [rows, segments]
  int64_t* ids;
  float* logprobs;  ///< [rows, 1 + top], or null
  int64_t* top_ids;
  FaultSlot* faults;

  __device__ bool adjusts() const { return bias != nullptr || counts != nullptr || mask != nullptr; }
};

/// Maps floats to unsigned integers in the same order; both zeros map to the same integer.
__device__ inline uint32_t order_key(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
/// Logit and id as one integer: a larger logit ranks higher, then a lower id.
__device__ inline Mass rank_of(float logit, int id) {
  return (Mass{order_key(logit)} << 32U) | (0xffffffffU - static_cast<uint32_t>(id));
}
__device__ inline int id_of(Mass rank) { return static_cast<int>(0xffffffffU - static_cast<uint32_t>(rank)); }

/// One row: its options and logits.
template <class T>
struct Row {
  const Params& p;
  int64_t row;
  float temperature, top_p, min_p, typical_p, repetition, presence, frequency;
  int top_k;
  float per_log2;  ///< log2(e) / temperature; 0 if greedy
  float most = 0;  ///< the largest adjusted logit, once known

  __device__ Row(const Params& params, int64_t index) : p(params), row(index) {
    const auto number = [&](const float* option, float otherwise) {
      return option != nullptr ? option[row] : otherwise;
    };
    temperature = number(p.temperature, 1);
    top_p = number(p.top_p, 1);
    min_p = number(p.min_p, 0);
    typical_p = number(p.typical_p, 1);
    repetition = number(p.repetition, 1);
    presence = number(p.presence, 0);
    frequency = number(p.frequency, 0);
    top_k = p.top_k != nullptr ? p.top_k[row] : 0;
    per_log2 = temperature > 0 ? kLog2E / temperature : 0.0F;
  }
  __device__ bool filters() const { return (top_k > 0 && top_k < p.vocab) || top_p < 1 || min_p > 0 || typical_p < 1; }
  __device__ const T* logits() const { return static_cast<const T*>(p.logits) + row * p.stride; }
  __device__ float raw(int id) const { return to_float(logits()[id]); }
  __device__ bool allows(int id) const {
    return p.mask == nullptr || (p.mask[row * p.mask_stride + id / 32] >> (id % 32) & 1) != 0;
  }
  /// The logit after bias and penalties. Each operation is rounded separately (no FMA), so every kernel computes the
  /// same bits.
  __device__ float adjusted(int id, float logit) const {
    if (p.bias != nullptr) logit = __fadd_rn(logit, p.bias[row * p.stride + id]);
    if (p.counts == nullptr) return logit;
    const int32_t count = p.counts[row * p.stride + id];
    if (count == 0) return logit;
    logit = logit < 0 ? __fmul_rn(logit, repetition) : __fdiv_rn(logit, repetition);
    const int32_t occurrences = count & 0x7fffffff;
    if (occurrences == 0) return logit;
    return __fsub_rn(logit, __fmaf_rn(frequency, static_cast<float>(occurrences), presence));
  }
  /// log2 of a token's probability relative to the likeliest token's.
  __device__ float log2_weight(float logit) const { return __fmul_rn(__fsub_rn(logit, most), per_log2); }
  __device__ float weight(float logit) const { return fast_exp2(log2_weight(logit)); }
  __device__ Mass mass(float logit) const { return static_cast<Mass>(weight(logit) * kMassUnit); }
};

template <class V>
__device__ inline V warp_total(V value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}
__device__ inline Mass warp_largest(Mass value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value = max(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}

static_assert(kChooseThreads == kWarp * kWarp, "one lane reads each warp's number");

/// Sums kCount values over the block, returned in every thread; `scratch` holds kCount · 32 numbers.
template <int kCount>
__device__ inline void block_totals(Mass (&values)[kCount], Mass* scratch) {
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    values[n] = warp_total(values[n]);
    if (threadIdx.x % kWarp == 0) scratch[n * kWarp + threadIdx.x / kWarp] = values[n];
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kCount; ++n) values[n] = warp_total(scratch[n * kWarp + threadIdx.x % kWarp]);
  __syncthreads();
}
__device__ inline Mass block_total(Mass value, Mass* scratch) {
  Mass values[1] = {value};
  block_totals(values, scratch);
  return values[0];
}
__device__ inline Mass block_largest(Mass value, Mass* scratch) {
  value = warp_largest(value);
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = warp_largest(scratch[threadIdx.x % kWarp]);
  __syncthreads();
  return value;
}
/// Exclusive prefix sum: the sum over all threads before this one.
__device__ inline Mass total_before(Mass value, Mass* scratch) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  Mass running = value;
  for (int step = 1; step < kWarp; step *= 2) {
    const Mass other = __shfl_up_sync(kAllLanes, running, step);
    if (lane >= step) running += other;
  }
  if (lane == kWarp - 1) scratch[threadIdx.x / kWarp] = running;
  __syncthreads();
  Mass before = running - value;
  for (int warp = 0; warp < static_cast<int>(threadIdx.x) / kWarp; ++warp) before += scratch[warp];
  __syncthreads();
  return before;
}

/// The largest key k such that the items with keys ≥ k have a total worth of at least `enough`; 0 if the total of all
/// items is less. A radix search, two bits per pass. `visit(fn)` calls fn(key, worth) for every item of this thread.
template <class Visit>
__device__ inline uint32_t radix_threshold(Mass enough, Mass* scratch, const Visit& visit) {
  uint32_t bound = 0;
  for (int shift = 30; shift >= 0; shift -= 2) {
    Mass sums[3] = {};
    visit([&](uint32_t key, auto&& worth) {
      if (key < bound + (1U << shift)) return;
      const Mass value = worth();
#pragma unroll
      for (uint32_t part = 1; part <= 3; ++part) {
        if (key >= bound + (part << shift)) sums[part - 1] += value;
      }
    });
    block_totals(sums, scratch);
    uint32_t parts = 0;
#pragma unroll
    for (int part = 0; part < 3; ++part) parts += sums[part] >= enough ? 1 : 0;
    bound += parts << shift;
  }
  return bound;
}

}  // namespace lamina::ops::cuda::sampling
