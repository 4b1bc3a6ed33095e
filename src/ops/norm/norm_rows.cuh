#pragma once

// Shared by the GPU kernels of RMS norm (kCentred false: the mean is not subtracted) and layer norm (kCentred true). A
// group is a row, or a part of a row that has its own mean and variance (RmsNormOptions::group_size). A pack is 16
// bytes of neighbouring elements, one load or store.
//
// A group is read from memory once and kept in the registers of a team of threads: some lanes of a warp for short
// groups, a whole block for long ones. The variance around the mean then needs no second read, so memory traffic is one
// read and one write (two each with the residual). norm_backward.cuh explains backward. If a width or an address is not
// 16-byte aligned, or a group has more than kMostPacks packs, a block per group reads it element by element, again from
// cache for each pass.

#include <algorithm>
#include <bit>

#include "lamina/tensor/cuda/vector_access.cuh"

namespace lamina::ops::cuda::norm {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kTeamThreads = 256;   // threads of a block with several teams
constexpr int kBlockThreads = 512;  // maximum threads of a block that is one team
constexpr int kLoopThreads = 256;   // threads of a block that reads a group from cache again

/// The threads that share a group: `lanes` neighbouring threads of a warp (a power of two), or the whole block.
template <bool kBlock>
struct Team {
  int lanes;
  float* scratch;  ///< [64], shared

  __device__ Team(int given, float* shared) : lanes(kBlock ? static_cast<int>(blockDim.x) : given), scratch(shared) {}

  __device__ int lane() const { return kBlock ? threadIdx.x : threadIdx.x & (lanes - 1); }
  __device__ int index() const { return kBlock ? 0 : threadIdx.x / lanes; }
  __device__ int count() const { return kBlock ? 1 : blockDim.x / lanes; }

  /// Sum over the team, returned in every thread. All threads of the block must call it.
  __device__ float sum(float value) const {
    if constexpr (kBlock) {
      return block_sum(value, scratch);
    } else {
      for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
      return value;
    }
  }
  /// Two sums at once, with one pair of barriers. All threads of the block must call it.
  __device__ float2 sum(float2 value) const {
    const int most = kBlock ? kWarp : lanes;
    for (int step = most / 2; step > 0; step /= 2) {
      value.x += __shfl_xor_sync(kAllLanes, value.x, step);
      value.y += __shfl_xor_sync(kAllLanes, value.y, step);
    }
    if constexpr (kBlock) {
      const int lane = threadIdx.x % kWarp;
      if (lane == 0) {
        scratch[threadIdx.x / kWarp] = value.x;
        scratch[kWarp + threadIdx.x / kWarp] = value.y;
      }
      __syncthreads();
      const bool there = lane < static_cast<int>(blockDim.x) / kWarp;
      value.x = warp_sum(there ? scratch[lane] : 0.0F);
      value.y = warp_sum(there ? scratch[kWarp + lane] : 0.0F);
      __syncthreads();
    }
    return value;
  }

  /// Calls fn(k, p) for each of this thread's packs with index p < packs; k counts them. The loop over k is unrolled.
  template <int kPacks, class F>
  __device__ void each(int packs, const F& fn) const {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int p = lane() + k * lanes;
      if (p < packs) fn(k, p);
    }
  }
};

/// Loads kCount floats (a multiple of four) from a 16-byte-aligned address that the kernel does not write.
template <int kCount>
__device__ inline void load_floats(const float* from, float (&to)[kCount]) {
#pragma unroll
  for (int j = 0; j < kCount; j += 4) {
    const uint4 four = load_constant(from + j);
    __builtin_memcpy(to + j, &four, sizeof(four));
  }
}
/// Loads kCount elements of T (at most one pack) as floats.
template <class T, int kCount>
__device__ inline void load_floats(const T* from, float (&to)[kCount]) {
  Vec<T, kCount> some;
  if constexpr (sizeof(some) == 16) {
    const uint4 word = load_constant(from);
    __builtin_memcpy(&some, &word, sizeof(some));
  } else {
    some = *reinterpret_cast<const Vec<T, kCount>*>(from);
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j) to[j] = to_float(some.values[j]);
}
template <int kCount>
__device__ inline void store_floats(const float (&from)[kCount], float* to) {
#pragma unroll
  for (int j = 0; j < kCount; j += 4) {
    *reinterpret_cast<float4*>(to + j) = make_float4(from[j], from[j + 1], from[j + 2], from[j + 3]);
  }
}

/// A weight or bias stored in f32 (`wide`) or in T (`narrow`), read as f32. Both null: not given.
template <class T>
struct Parameters {
  const float* wide = nullptr;
  const T* narrow = nullptr;

  // NOLINTNEXTLINE(google-explicit-constructor): callers compare with null and check the alignment
  __host__ __device__ operator const void*() const {
    return narrow != nullptr ? static_cast<const void*>(narrow) : wide;
  }
  __device__ Parameters operator+(int64_t n) const {
    return narrow != nullptr ? Parameters{nullptr, narrow + n} : Parameters{wide + n, nullptr};
  }
  __device__ float operator[](int64_t i) const { return narrow != nullptr ? to_float(narrow[i]) : wide[i]; }
};
/// Loads kCount parameters (at most one pack) as floats.
template <class T, int kCount>
__device__ inline void load_floats(const Parameters<T>& from, float (&to)[kCount]) {
  if (from.narrow == nullptr) return load_floats(from.wide, to);
  load_floats(from.narrow, to);
}

/// The pointer to a norm's weight or bias, which is f32 or has element type E.
template <class E>
Parameters<DeviceType<E>> parameters(const Tensor& tensor) {
  if (tensor.defined() && tensor.dtype() != DType::f32) return {nullptr, device_data<E>(tensor)};
  return {device_data<float>(tensor), nullptr};
}

/// How threads are divided among groups: teams of `lanes` among a block's `threads`, or the whole block.
struct Layout {
  int threads;
  int lanes;
  bool block;
  int packs;  ///< maximum per thread

  int teams() const { return block ? 1 : threads / lanes; }
};
constexpr int64_t kMostPacks = 4 * kBlockThreads;

inline Layout layout_of(int64_t packs) {
  if (packs <= 2 * kWarp) {
    const auto lanes = std::bit_ceil(static_cast<unsigned>(std::min<int64_t>(packs, kWarp)));
    return {kTeamThreads, static_cast<int>(lanes), false, 2};
  }
  const int most = packs <= 2 * kBlockThreads ? 2 : 4;
  const int64_t threads = (packs + most - 1) / most;
  return {static_cast<int>((threads + kWarp - 1) / kWarp * kWarp), 0, true, most};
}

/// The layout for a group of `packs` packs. Up to 128 packs: teams of lanes, with as few packs per thread as keep all
/// lanes busy. More: the whole block.
inline Layout packed_layout_of(int64_t packs) {
  Layout best{0, 0, false, 0};
  for (int each = 1; each <= 4; ++each) {
    const auto lanes = static_cast<int>(std::bit_ceil(static_cast<uint64_t>((packs + each - 1) / each)));
    if (lanes > kWarp || (best.packs > 0 && lanes * each >= best.lanes * best.packs)) continue;
    best = {kTeamThreads, lanes, false, each};
  }
  return best.packs > 0 ? best : layout_of(packs);
}

template <class T>
bool can_hold(int64_t group, std::initializer_list<const void*> pointers) {
  if (group % Pack<T>::kSize != 0 || group / Pack<T>::kSize > kMostPacks) return false;
  return std::all_of(pointers.begin(), pointers.end(),
                     [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; });
}

}  // namespace lamina::ops::cuda::norm
