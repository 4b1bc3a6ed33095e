#pragma once

// Shared by the cross entropy kernels: the transform of a logit, the sums over a row, and the row's loss and gradient.
//
// If logits are only scaled (kPlain), exp(u − max u) is computed as 2^(k·x − k·maximum) with logit x and k = scale ·
// log2(e): one FMA and one ex2 instruction. k·maximum is rounded; the logarithm of the sum corrects for that.

#include <type_traits>

#include "lamina/ops/elementwise/elements.cuh"
#include "lamina/ops/loss/cross_entropy_row.cuh"
#include "lamina/tensor/cuda/vector_access.cuh"

namespace lamina::ops::cuda::loss {

using namespace lamina::cuda;  // NOLINT: kernel helpers

struct Rows {
  const int64_t* targets;
  const float* bias;
  const float* share;
  const float* grad;
  float* losses;
  float* lse;
  int64_t rows, classes;
  int64_t stride, out_stride;  ///< row strides of logits and dlogits
  int64_t ignore_index;
  float smoothing, z_loss, cap, scale;
  bool grad_per_row;
  FaultSlot* faults;

  /// True if logits are only multiplied by a positive factor. Then the largest logit also has the largest probability.
  bool plain() const { return bias == nullptr && cap == 0.0F && smoothing == 0.0F && scale > 0.0F; }
};

/// u = soft_cap(scale · (logit + bias))
__device__ inline float transformed(const Rows& args, float logit, int64_t i) {
  if (args.bias != nullptr) logit += args.bias[i];
  const float u = logit * args.scale;
  return args.cap == 0.0F ? u : args.cap * tanhf(u / args.cap);
}

/// The row's target, or −1 if the row is ignored or its target is invalid; the thread with `first` then writes a loss
/// of zero.
__device__ inline int64_t target_of(const Rows& args, int64_t index, bool first) {
  const int64_t target = args.targets[index];
  if (target != args.ignore_index && target >= 0 && target < args.classes) return target;
  if (first) {
    if (target != args.ignore_index) report(args.faults, Fault::target, target);
    if (args.losses != nullptr) args.losses[index] = 0.0F;
    if (args.losses != nullptr && args.lse != nullptr) args.lse[index] = 0.0F;
  }
  return -1;
}

/// Running sums of a thread, a block or a row: the maximum of x (the logit if kPlain, else u), the sum of exponentials
/// relative to that maximum and, with label smoothing, Σ u. An x of −inf adds nothing; NaN propagates.
template <bool kPlain>
struct RowSums {
  float most = -INFINITY;
  float sum = 0.0F;
  float total = 0.0F;

  static __device__ float element(const Rows& args, float logit, int64_t i) {
    if constexpr (kPlain) return logit;
    return transformed(args, logit, i);
  }
  static __device__ float unit(const Rows& args) { return kPlain ? args.scale * kLog2E : 1.0F; }
  /// The subtrahend in the exponent. An explicit multiplication that the compiler must not contract into an FMA,
  /// because every use must round it in the same way.
  static __device__ float base(float row_max, float k) { return kPlain ? __fmul_rn(row_max, k) : row_max; }
  static __device__ float power(float x, float k, float base) {
    return kPlain ? fast_exp2(fmaf(x, k, -base)) : expf(x - base);
  }

  /// Adds kCount values of x. Missing ones are passed as −inf.
  template <int kCount>
  __device__ void take(const float (&x)[kCount], float k) {
    float top = most;
#pragma unroll
    for (int j = 0; j < kCount; ++j) top = fmaxf(top, x[j]);
    if (top > most) {
      sum = sum_relative_to(top, k);
      most = top;
    }
    const float from = most == -INFINITY ? 0.0F : base(most, k);
#pragma unroll
    for (int j = 0; j < kCount; ++j) sum += power(x[j], k, from);
  }
  /// Adds packs, sixteen elements at a time. first(n) returns the index of pack n's first element, or a negative number
  /// if the pack does not exist.
  template <class T, int kCount, class First>
  __device__ void take_packs(const Rows& args, const Pack<T> (&packs)[kCount], const First& first, float k) {
    constexpr int kSize = Pack<T>::kSize;
    constexpr int kTogether = 16 / kSize;
    static_assert(kCount % kTogether == 0);
#pragma unroll
    for (int n = 0; n < kCount; n += kTogether) {
      float x[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int64_t at = first(n + i / kSize);
        x[i] = -INFINITY;
        if (at >= 0) x[i] = element(args, to_float(packs[n + i / kSize].values[i % kSize]), at + i % kSize);
        if (!kPlain && at >= 0) total += x[i];
      }
      take(x, k);
    }
  }
  /// The sum relative to `row_max` instead of `most`; row_max must not be smaller.
  __device__ float sum_relative_to(float row_max, float k) const {
    if (sum == 0.0F) return 0.0F;
    const float step = base(most, k) - base(row_max, k);
    return sum * (kPlain ? fast_exp2(step) : expf(step));
  }
  /// The sums of the whole block, returned in every thread.
  __device__ RowSums of_block(const Rows& args, float k, float* scratch) const {
    RowSums all;
    all.most = block_max(most, scratch);
    all.sum = block_sum(sum_relative_to(all.most, k), scratch);
    if (!kPlain && args.smoothing != 0.0F) all.total = block_sum(total, scratch);
    return all;
  }
  __device__ float lse(const Rows& args, float k) const {
    if constexpr (!kPlain) return most + logf(sum);
    const float rounded = fmaf(most, k, -base(most, k));  // rounding error of base(): k · most minus base
    return fmaf(most, args.scale, kLn2 * (log2f(sum) - rounded));
  }
};

/// Writes a row's loss and lse.
template <bool kPlain>
__device__ inline void put_loss(const Rows& args, int64_t index, const RowSums<kPlain>& sums, float lse,
                                float u_of_target) {
  float loss = lse - (1.0F - args.smoothing) * u_of_target;
  if (args.smoothing != 0.0F) loss -= args.smoothing * sums.total / static_cast<float>(args.classes);
  args.losses[index] = loss + args.z_loss * lse * lse;
  if (args.lse != nullptr) args.lse[index] = lse;
}

/// Computes the gradients of a row's logits, a few neighbouring elements at a time.
template <bool kPlain, class T>
struct RowGradient {
  static constexpr bool kShort = kPlain && !std::is_same_v<T, float>;

  int64_t target;
  float lse, weight, even, rise, narrow, k;

  __device__ RowGradient(const Rows& args, int64_t index, int64_t of_target, float of_row)
      : target(of_target), lse(of_row), weight(args.scale) {
    if (args.share != nullptr) weight *= *args.share;
    if (args.grad != nullptr) weight *= args.grad[args.grad_per_row ? index : 0];
    even = args.smoothing / static_cast<float>(args.classes);
    rise = 1.0F + 2.0F * args.z_loss * lse;
    narrow = args.cap == 0.0F ? 0.0F : 1.0F / args.cap;
    k = args.scale * kLog2E;
    if constexpr (kShort) {
      lse *= kLog2E;
      rise *= weight;
    }
  }

  /// Gradients of kCount logits starting at element `first`.
  template <int kCount>
  __device__ Vec<T, kCount> of(const Rows& args, const float (&logits)[kCount], int64_t first) const {
    const int64_t at = target - first;
    const bool here = static_cast<uint64_t>(at) < static_cast<uint64_t>(kCount);
    float pull[kCount];
    if constexpr (kShort) {
#pragma unroll
      for (int j = 0; j < kCount; ++j) pull[j] = fast_exp2(fmaf(logits[j], k, -lse)) * rise;
      if (here) {
#pragma unroll
        for (int j = 0; j < kCount; ++j) pull[j] -= j == at ? weight : 0.0F;
      }
    } else {
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        const float u = kPlain ? logits[j] * args.scale : transformed(args, logits[j], first + j);
        pull[j] = fmaf(exp_for<T>(u - lse), rise, -even);
        if (here && j == at) pull[j] -= 1.0F - args.smoothing;
        pull[j] *= weight;
        if constexpr (!kPlain) pull[j] *= fmaf(-u * narrow, u * narrow, 1.0F);
      }
    }
    Vec<T, kCount> out;
#pragma unroll
    for (int j = 0; j < kCount; ++j) out.values[j] = from_float<T>(pull[j]);
    return out;
  }
  __device__ T of_one(const Rows& args, float logit, int64_t i) const {
    const float one[1] = {logit};
    return of<1>(args, one, i).values[0];
  }
};

template <class T>
__device__ inline Pack<T> zeros() {
  Pack<T> pack;
#pragma unroll
  for (int j = 0; j < Pack<T>::kSize; ++j) pack.values[j] = from_float<T>(0.0F);
  return pack;
}

/// Computes losses and gradients of rows that fit on chip (in the registers of a warp or the shared memory of a
/// cluster); returns false, without doing anything, if they do not fit. Defined in cross_entropy_held_cuda.cu.
template <class T>
bool run_on_chip_rows(const Device& device, const T* logits, T* dlogits, const Rows& rows);

}  // namespace lamina::ops::cuda::loss
