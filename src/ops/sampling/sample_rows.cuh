#pragma once

// Shared by the GPU kernels of sample_rows: arguments, options of a row, and adjusted logits, which include bias and
// penalties.

#include "lamina/ops/sampling/block_mass.cuh"
#include "lamina/ops/sampling/sample_rows_kernel.h"

namespace lamina::ops::cuda::sampling {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kSegment = 1024;  // ids that one warp processes in the first kernel
constexpr int kChooseThreads = kMassThreads;
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

}  // namespace lamina::ops::cuda::sampling
