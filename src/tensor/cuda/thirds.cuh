#pragma once

// Numbers of f32 as sums of three of a half type, so that the matrix units multiply them with another of that type
// without losing any of their digits.

#include "lamina/tensor/cuda/kernel.cuh"

namespace lamina::cuda {

constexpr int kThirds = 3;

/// Three numbers whose sum x is, but for less than 2^-24 of it.
template <class T>
struct Thirds {
  T parts[kThirds];

  __device__ explicit Thirds(float x) {
#pragma unroll
    for (int n = 0; n < kThirds; ++n) {
      parts[n] = from_float<T>(x);
      x -= to_float(parts[n]);
    }
  }
};
/// Those of two numbers side by side.
template <class T>
__device__ inline void split_pair(float first, float second, uint32_t (&to)[kThirds]) {
  const Thirds<T> a(first);
  const Thirds<T> b(second);
#pragma unroll
  for (int n = 0; n < kThirds; ++n) {
    const T pair[2] = {a.parts[n], b.parts[n]};
    to[n] = *reinterpret_cast<const uint32_t*>(pair);
  }
}

}  // namespace lamina::cuda
