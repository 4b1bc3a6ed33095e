#pragma once

// Splits an f32 number into a sum of three 16-bit numbers, so that 16-bit tensor core products reach f32 precision.

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::cuda {

constexpr int kSplitParts = 3;

/// The three parts of x. Their sum differs from x by a relative error below 2^-24.
template <class T>
struct SplitF32x3 {
  T parts[kSplitParts];

  __device__ explicit SplitF32x3(float x) {
#pragma unroll
    for (int n = 0; n < kSplitParts; ++n) {
      parts[n] = from_float<T>(x);
      x -= to_float(parts[n]);
    }
  }
};
/// Splits two numbers. to[i] packs part i of both.
template <class T>
__device__ inline void split_pair(float first, float second, uint32_t (&to)[kSplitParts]) {
  const SplitF32x3<T> a(first);
  const SplitF32x3<T> b(second);
#pragma unroll
  for (int n = 0; n < kSplitParts; ++n) {
    const T pair[2] = {a.parts[n], b.parts[n]};
    to[n] = *reinterpret_cast<const uint32_t*>(pair);
  }
}

}  // namespace lamina::cuda
