#pragma once

// Products of 2 to 48 rows of x (tokens) with a 16-bit weight, limited by reading the weight once. A block owns a slab
// of 16·kTiles weight rows, and its four warps split the columns. A warp multiplies its columns of the slab by all
// tokens on tensor cores. The weight is the left operand, whose tiles have 16 rows, and x the right one, whose tiles
// have only 8 columns; so few tokens waste few multiplications.
//
// Each warp streams its columns of the weight and of x by TMA through a ring of its own in shared memory. Only this
// warp waits for the ring's barriers, so the loop has no block barrier, and up to 96 KB per block are in flight. The
// sums of the warps are added in shared memory. The order of additions depends neither on the number of tokens nor on
// the slab's size.
//
// The kernel uses programmatic dependent launch and needs compute capability 9.0. If the previous kernel does not write
// the weight, the first weights are requested before that kernel ends.

#include <algorithm>

#include "lamina/ops/activation/gated_activation.cuh"
#include "lamina/tensor/cuda/async_copy.cuh"
#include "lamina/tensor/cuda/matrix_loads.cuh"
#include "lamina/tensor/cuda/mma.cuh"
#include "lamina/tensor/cuda/tma.cuh"

namespace lamina::ops::cuda::weight_slabs {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kStep = 64;            // columns per step
constexpr int kRow = kStep * 2;      // bytes of a row per step
constexpr int kMostStages = 8;       // maximum number of steps in flight per warp
constexpr int kMostRing = 24 << 10;  // maximum bytes of a warp's ring
constexpr int kBarriers = 1024;      // bytes reserved for barriers before the rings

struct Product {
  CUtensorMap x;       ///< [rows, in]
  CUtensorMap weight;  ///< [out or 2·out, in]
  const void* bias;    ///< [out or 2·out], or null
  bool is_bias_f32;    ///< the bias is f32; else it has the dtype of x
  void* y;             ///< [rows, out]
  void* z;             ///< [rows, out], or null
  int rows, out;
  int steps;     ///< number of steps along the columns
  int second;    ///< number of weight rows from an output's gate to its up
  int share;     ///< steps per warp
  int stages;    ///< number of stages of a warp's ring
  bool settled;  ///< the previous kernel does not write the weight
  Activation activation;
  Gate gate;
  GateUnit unit;
};

/// Sizes for 16·kTiles weight rows and 8·kTokenTiles tokens. kParts = 2: half of the rows are gates, half are ups.
template <int kTiles, int kTokenTiles, int kParts>
struct Sizes {
  static constexpr int kSlab = 16 * kTiles;
  static constexpr int kOutputs = kSlab / kParts;
  static constexpr int kQuads = kOutputs / 4;  ///< groups of four outputs per token
  static constexpr int kTokens = 8 * kTokenTiles;
  static constexpr int kStage = (kSlab + kTokens) * kRow;
  static constexpr int kStages = std::clamp(kMostRing / kStage, 2, kMostStages);
  /// Floats from one token to the next in a warp's sums; avoids bank conflicts.
  static constexpr int kPitch = kSlab + 4;
  static constexpr int kSums = kTokens * kPitch * 4;

  __host__ __device__ static int ring(int stages) { return (max(stages * kStage, kSums) + 1023) / 1024 * 1024; }
  /// Bytes of shared memory of a block.
  static int shared(int stages) { return kBarriers + kWarps * ring(stages); }
};

__device__ inline void add(float4& sum, const float4& v) { sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w; }

/// The part of a slab that one warp multiplies: steps [begin, end) along the columns.
template <class T, int kTiles, int kTokenTiles, int kParts>
class WarpProduct {
  using S = Sizes<kTiles, kTokenTiles, kParts>;

 public:
  /// `ring` is aligned to 1024 bytes; `barriers` has room for kMostStages.
  __device__ WarpProduct(const Product& p, int slab, int begin, int end, char* ring, uint64_t* barriers)
      : p_(p),
        slab_(slab),
        begin_(begin),
        end_(end),
        lane_(static_cast<int>(threadIdx.x) % kWarp),
        ring_(shared_address(ring)),
        barriers_(shared_address(barriers)) {
    if (lane_ == 0) {
      for (int n = 0; n < p.stages; ++n) barrier_init(barriers_ + n * 8, 1);
      fence_barrier_init();
    }
    __syncwarp();
  }

  /// Starts the copies of the first weights.
  __device__ void start_weights() const {
    for (int n = 0; n < p_.stages && begin_ + n < end_; ++n) copy_weight(begin_ + n, n);
  }
  /// Multiplies all steps. start_weights() must have been called.
  __device__ void run() {
    for (int n = 0; n < p_.stages && begin_ + n < end_; ++n) copy_rows(begin_ + n, n);
    int stage = 0;
    uint32_t parity = 0;
    for (int step = begin_; step < end_; ++step) {
      barrier_wait(barriers_ + stage * 8, parity);
      multiply(ring_ + stage * S::kStage);
      __syncwarp();
      if (step + p_.stages < end_) {
        copy_weight(step + p_.stages, stage);
        copy_rows(step + p_.stages, stage);
      }
      if (++stage == p_.stages) stage = 0, parity ^= 1;
    }
  }

  /// Writes the sums to [tokens][kPitch].
  __device__ void put(float* to) const {
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        float* at = to + (t * 8 + lane_ % 4 * 2) * S::kPitch + i * 16 + lane_ / 4;
        at[0] = sums_[i][t][0];
        at[S::kPitch] = sums_[i][t][1];
        at[8] = sums_[i][t][2];
        at[S::kPitch + 8] = sums_[i][t][3];
      }
    }
  }

 private:
  __device__ void copy_weight(int step, int stage) const {
    if (lane_ != 0) return;
    const uint32_t to = ring_ + stage * S::kStage;
    const uint32_t barrier = barriers_ + stage * 8;
    barrier_expect(barrier, S::kStage);
#pragma unroll
    for (int t = 0; t < kParts; ++t) {
      tma_load(to + t * S::kOutputs * kRow, p_.weight, barrier, step * kStep, slab_ * S::kOutputs + t * p_.second);
    }
  }
  __device__ void copy_rows(int step, int stage) const {
    if (lane_ != 0) return;
    tma_load(ring_ + stage * S::kStage + S::kSlab * kRow, p_.x, barriers_ + stage * 8, step * kStep, 0);
  }
  /// Address of 16 bytes in a tile with the 128-byte swizzle.
  __device__ static uint32_t at(uint32_t tile, int row, int chunk) {
    return tile + row * kRow + ((chunk ^ (row & 7)) << 4);
  }
  __device__ void multiply(uint32_t tile) {
    const uint32_t x = tile + S::kSlab * kRow;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t b[2][kTokenTiles][2];
      load_x(b, x, half);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          uint32_t a[4];
          ldmatrix_x4(a, at(tile, i * 16 + lane_ % 16, half * 4 + k * 2 + lane_ / 16));
#pragma unroll
          for (int t = 0; t < kTokenTiles; ++t) mma_m16n8k16<T>(sums_[i][t], a, b[k][t][0], b[k][t][1]);
        }
      }
    }
  }
  /// Loads the fragments of 32 columns of x.
  __device__ void load_x(uint32_t (&b)[2][kTokenTiles][2], uint32_t x, int half) const {
    uint32_t four[4];
    if constexpr (kTokenTiles == 1) {
      ldmatrix_x4(four, at(x, lane_ % 8, half * 4 + lane_ / 8));
#pragma unroll
      for (int j = 0; j < 4; ++j) b[j / 2][0][j % 2] = four[j];
    } else {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int t = 0; t < kTokenTiles; t += 2) {
          ldmatrix_x4(four, at(x, t * 8 + lane_ / 16 * 8 + lane_ % 8, half * 4 + k * 2 + lane_ / 8 % 2));
#pragma unroll
          for (int j = 0; j < 4; ++j) b[k][t + j / 2][j % 2] = four[j];
        }
      }
    }
  }

  const Product& p_;
  int slab_, begin_, end_, lane_;
  uint32_t ring_, barriers_;
  float sums_[kTiles][kTokenTiles][4] = {};
};

template <class T>
__device__ inline float bias_at(const Product& p, int row) {
  return p.is_bias_f32 ? static_cast<const float*>(p.bias)[row] : to_float(static_cast<const T*>(p.bias)[row]);
}

/// Applies bias and activation or gate to four outputs of a token, and stores them.
template <class T, int kParts>
__device__ inline void finish(const Product& p, int token, int output, const float4 (&sums)[kParts]) {
  const int count = min(4, p.out - output);
  Vec<T, 4> y{}, z{};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    float total[kParts];
#pragma unroll
    for (int t = 0; t < kParts; ++t) {
      total[t] = reinterpret_cast<const float*>(&sums[t])[j];
      if (p.bias != nullptr && j < count) total[t] += bias_at<T>(p, output + j + t * p.second);
    }
    if constexpr (kParts == 1) {
      z.values[j] = from_float<T>(total[0]);
      y.values[j] = from_float<T>(activation_value(p.activation, total[0]));
    } else {
      y.values[j] = from_float<T>(gate_value(p.unit, AnyGate<T>{p.gate}, {total[0], total[1]}));
    }
  }
  const int64_t at = static_cast<int64_t>(token) * p.out + output;
  if (p.out % 4 == 0 && count == 4) {
    store_vector_plain(static_cast<T*>(p.y) + at, y);
    if (kParts == 1 && p.z != nullptr) store_vector_plain(static_cast<T*>(p.z) + at, z);
    return;
  }
  for (int j = 0; j < count; ++j) {
    static_cast<T*>(p.y)[at + j] = y.values[j];
    if (kParts == 1 && p.z != nullptr) static_cast<T*>(p.z)[at + j] = z.values[j];
  }
}

template <class T, int kTiles, int kTokenTiles, int kParts>
__global__ void __launch_bounds__(kThreads, 2) weight_slabs_kernel(const __grid_constant__ Product p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using S = Sizes<kTiles, kTokenTiles, kParts>;
  extern __shared__ __align__(1024) char barriers[];
  char* rings = barriers + kBarriers;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp;
  const int slab = static_cast<int>(blockIdx.x);
  const int ring = S::ring(p.stages);
  char* mine = rings + warp * ring;
  WarpProduct<T, kTiles, kTokenTiles, kParts> product(p, slab, warp * p.share, min((warp + 1) * p.share, p.steps), mine,
                                                      reinterpret_cast<uint64_t*>(barriers) + warp * kMostStages);
  if (p.settled) product.start_weights();
  grid_dependency_wait();
  if (!p.settled) product.start_weights();
  product.run();
  product.put(reinterpret_cast<float*>(mine));
  __syncthreads();
  for (int item = thread; item < p.rows * S::kQuads; item += kThreads) {
    const int token = item / S::kQuads;
    const int first = item % S::kQuads * 4;
    if (slab * S::kOutputs + first >= p.out) continue;
    float4 sums[kParts] = {};
#pragma unroll
    for (int t = 0; t < kParts; ++t) {
      const char* from = rings + (token * S::kPitch + t * S::kOutputs + first) * 4;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) add(sums[t], *reinterpret_cast<const float4*>(from + w * ring));
    }
    finish<T, kParts>(p, token, slab * S::kOutputs + first, sums);
  }
#endif
}

}  // namespace lamina::ops::cuda::weight_slabs
