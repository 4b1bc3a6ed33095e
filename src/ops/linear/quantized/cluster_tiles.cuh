#pragma once

// Products of up to 256 rows of x (tokens) by wgmma, where the blocks of a thread block cluster split the columns. This
// file has the arguments, the sizes, and the sum over the blocks of a cluster; quantized_tiles.cuh has the kernel.

#include <algorithm>

#include "lamina/ops/activation/gated_activation.cuh"
#include "lamina/ops/attention/cuda/wgmma/wgmma.cuh"
#include "lamina/tensor/cuda/async_copy.cuh"
#include "lamina/tensor/cuda/tma.cuh"

namespace lamina::ops::cuda {
/// A named namespace with only inline functions, so that builds for other GPUs have no unused functions.
namespace cluster_tiles {

using namespace lamina::cuda;  // NOLINT: kernel helpers

inline constexpr int kStep = 64;        // columns per step
inline constexpr int kRow = kStep * 2;  // bytes of a row per step
inline constexpr int64_t kMostRows = 256;

struct Product {
  CUtensorMap x;      ///< [rows, in]
  const float* bias;  ///< [out or 2·out], or null
  void* y;            ///< [rows, out]
  int rows, out;
  int steps;   ///< number of steps along the columns
  int splits;  ///< number of blocks in a cluster, which split the columns
  Activation activation;
  Gate gate;
  GateUnit unit;
};

/// Sizes for kGroups warpgroups of 64 weight rows each and 8·kBlocks tokens. kParts = 2: half of the rows are gates.
template <int kGroups, int kBlocks, int kParts>
struct Plan {
  static constexpr int kRows = kGroups * 64;
  static constexpr int kTokens = kBlocks * 8;
  static constexpr int kOutputs = kRows / kParts;
  static constexpr int kQuads = kOutputs / 4;
  static constexpr int kThreads = kGroups * kGroupThreads + kWarp;  // includes a warp that only loads
  // Floats from one token to the next in the sums; avoids bank conflicts.
  static constexpr int kPitch = kRows + 4;
  static constexpr int kSums = kTokens * kPitch * 4;  // bytes of the sums
};

__device__ inline void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/// Loads four floats from the shared memory of block `rank` of the cluster.
__device__ inline float4 load_remote(uint32_t address, int rank) {
  float4 v;
  asm volatile(
      "{ .reg .b32 there; mapa.shared::cluster.u32 there, %4, %5; "
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there]; }"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(address), "r"(rank)
      : "memory");
  return v;
}

/// Applies bias and activation or gate to four outputs of a token, and stores them. `out` is a multiple of 4.
template <class T, int kParts>
__device__ inline void finish(const Product& p, int token, int output, const float4 (&sums)[kParts]) {
  Vec<T, 4> y{};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    float total[kParts];
#pragma unroll
    for (int t = 0; t < kParts; ++t) {
      total[t] = reinterpret_cast<const float*>(&sums[t])[j];
      if (p.bias != nullptr) total[t] += p.bias[output + j + t * p.out];
    }
    if constexpr (kParts == 1) {
      y.values[j] = from_float<T>(activation_value(p.activation, total[0]));
    } else {
      y.values[j] = from_float<T>(gate_value(p.unit, AnyGate<T>{p.gate}, {total[0], total[1]}));
    }
  }
  store_vector_plain(static_cast<T*>(p.y) + static_cast<int64_t>(token) * p.out + output, y);
}

/// Writes the sums of a warpgroup to shared memory: to [tokens][P::kPitch]. Of every 16 rows, rows g and g + 8 of the
/// accumulators are weight rows 2g and 2g + 1.
template <class P, int kBlocks>
__device__ inline void put_sums(const AccumulatorTile<1, kBlocks>& sums, float* to) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  to += lane % 4 * 2 * P::kPitch + thread / kWarp * 16 + lane / 4 * 2;
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) {
    float* at = to + n * 8 * P::kPitch;
    *reinterpret_cast<float2*>(at) = {sums[0][n][0], sums[0][n][2]};
    *reinterpret_cast<float2*>(at + P::kPitch) = {sums[0][n][1], sums[0][n][3]};
  }
}

/// Adds the sums of the cluster's blocks and stores the results. In gated products, kUnit gates and kUnit ups
/// alternate. All threads must call it, after put_sums().
template <class T, class P, int kParts, int kUnit>
__device__ inline void add_splits(const Product& p, const float* sums) {
  const int split = static_cast<int>(blockIdx.x) % p.splits;
  const int tile = static_cast<int>(blockIdx.x) / p.splits;
  const int first = split * P::kTokens / p.splits;
  const int count = (split + 1) * P::kTokens / p.splits - first;
  __syncthreads();
  if (p.splits > 1) cluster_barrier();
  for (int item = static_cast<int>(threadIdx.x); item < count * P::kQuads; item += P::kThreads) {
    const int local = first + item / P::kQuads;
    const int quad = item % P::kQuads * 4;
    const int token = static_cast<int>(blockIdx.y) * P::kTokens + local;
    const int output = tile * P::kOutputs + quad;
    if (token >= p.rows || output >= p.out) continue;
    float4 total[kParts] = {};
#pragma unroll
    for (int t = 0; t < kParts; ++t) {
      const int row = kParts == 1 ? quad : quad / kUnit * 2 * kUnit + quad % kUnit + t * kUnit;
      const float* from = sums + local * P::kPitch + row;
      if (p.splits == 1) {
        total[t] = *reinterpret_cast<const float4*>(from);
        continue;
      }
#pragma unroll 4
      for (int s = 0; s < p.splits; ++s) {
        const float4 part = load_remote(shared_address(from), s);
        total[t].x += part.x, total[t].y += part.y, total[t].z += part.z, total[t].w += part.w;
      }
    }
    finish<T, kParts>(p, token, output, total);
  }
  __syncthreads();
  if (p.splits > 1) cluster_barrier();  // other blocks may still read this block's sums
}

/// Number of blocks that split the columns: as many as possible while one block per SM has at least four steps, or two
/// per SM have eight. A few places stay free in the second case, because clusters do not fill every GPC.
inline int splits_of(int blocks, int steps, const Device& device) {
  const int sms = sm_count(device);
  int splits = 1;
  for (const int n : {2, 3, 4, 6, 8}) {
    const bool fits = n * blocks <= sms ? steps >= 4 * n : n * blocks <= 2 * sms - 8 && steps >= 8 * n;
    if (fits) splits = n;
  }
  return splits;
}

}  // namespace cluster_tiles
}  // namespace lamina::ops::cuda
