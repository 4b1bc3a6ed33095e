#pragma once

// Shared by the kernels that compute a whole sublayer for one token (attention_sublayer_step, feed_forward_step). They
// use thread block clusters; each block computes a slice of every product. This file has the cluster and its exchange
// of values, the sum and norm of the residual stream, which every block computes, and products of one f32 row with bf16
// weight rows. The weight rows are copied to shared memory before the row is available. Such a kernel runs for a few
// microseconds including instruction fetches, so loops are not unrolled.

#include <algorithm>

#include "lamina/ops/linear/feed_forward_step_kernel.h"
#include "lamina/tensor/cuda/async_copy.cuh"
#include "lamina/tensor/cuda/kernel.cuh"
#include "lamina/tensor/cuda/tma.cuh"

namespace lamina::ops::cuda {

constexpr int kStepThreads = 256;
constexpr int kStepWarps = kStepThreads / lamina::cuda::kWarp;
constexpr int kStepBlocks = 8;  // blocks per cluster

/// This thread block's cluster.
struct Cluster {
  int rank;
  int id;

  __device__ Cluster()
      : rank(static_cast<int>(blockIdx.x) % kStepBlocks), id(static_cast<int>(blockIdx.x) / kStepBlocks) {}
  __device__ static void arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
  }
  __device__ static void wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
  }
  __device__ static void meet() {
    arrive();
    wait();
  }
  /// Address of `at` in the shared memory of block number `block` of the cluster.
  __device__ static uint32_t address_in(int block, const void* at) {
    uint32_t address = lamina::cuda::shared_address(at);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(address) : "r"(block));
#endif
    return address;
  }
  /// Writes to the shared memory of block number `block`; visible to it after meet().
  __device__ static void put(float* to, int block, float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address_in(block, to)), "f"(value) : "memory");
#endif
  }
};

/// An mbarrier in each block of a cluster. It completes when the expected number of floats has arrived.
class ClusterMailbox {
 public:
  /// Sets the number of floats to wait for. One thread must call it before the first cluster barrier.
  __device__ void expect(int numbers) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const uint32_t own = lamina::cuda::shared_address(&barrier_);
    lamina::cuda::barrier_init(own, 1);
    lamina::cuda::fence_barrier_init();
    lamina::cuda::barrier_expect(own, numbers * 4);
#endif
  }
  /// Sends a float to the address of `to` in block number `block`.
  __device__ void send(float* to, int block, float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                     Cluster::address_in(block, to)),
                 "f"(value), "r"(Cluster::address_in(block, &barrier_))
                 : "memory");
#endif
  }
  __device__ void wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{ .reg .pred open; again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 open, [%0], 0; @!open bra "
        "again; }" ::"r"(lamina::cuda::shared_address(&barrier_))
        : "memory");
#endif
  }

 private:
  uint64_t barrier_;
};

/// The residual stream h = x + Σ parts, and the parameters of the norm after it.
struct StepInput {
  const float* x;      ///< [width]
  const float* parts;  ///< [n_parts, width]
  float* h;            ///< [width]: written by the first block; null if there are no parts to add
  const float* scale;  ///< [width], or null
  const float* bias;   ///< [width], or null
  float offset;        ///< added to the norm's scale
  float eps;
  int width;  ///< a multiple of 8
  int n_parts;
  bool is_layer_norm;         ///< layer norm, else RMS norm
  bool weights_just_written;  ///< the weights may just have been written, so wait before reading them
};

__device__ inline void add_to(float4& sum, const float4& value) {
  sum.x += value.x;
  sum.y += value.y;
  sum.z += value.z;
  sum.w += value.w;
}

/// Computes the residual stream and its norm into `row` [width], which all threads of the block may then read. A factor
/// is left out of the norm and returned instead: products are linear, so it can be applied later. `scratch` holds 32
/// floats. Calls meanwhile() after the stream has been read.
template <class F>
__device__ float load_normalized_row(const StepInput& in, float* row, float* scratch, const F& meanwhile) {
  constexpr int kInFlight = 12;
  const int packs = in.width / 4;
  auto* row_packs = reinterpret_cast<float4*>(row);
  const auto scaled = [&](float4 v, int n) {
    if (in.scale == nullptr) return v;
    const float4 s = __ldg(reinterpret_cast<const float4*>(in.scale) + n);
    return float4{v.x * (s.x + in.offset), v.y * (s.y + in.offset), v.z * (s.z + in.offset), v.w * (s.w + in.offset)};
  };
  float sum = 0;
  float squares = 0;
#pragma unroll 1
  for (int n = threadIdx.x; n < packs; n += kStepThreads) {
    float4 v = __ldcg(reinterpret_cast<const float4*>(in.x) + n);
    const float4* parts = reinterpret_cast<const float4*>(in.parts) + n;
#pragma unroll 1
    for (int first = 0; first < in.n_parts; first += kInFlight) {  // adds the parts in order
      float4 values[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        values[i] = first + i < in.n_parts ? __ldcg(parts + (first + i) * packs) : float4{};
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) add_to(v, values[i]);
    }
    if (in.h != nullptr && blockIdx.x == 0) reinterpret_cast<float4*>(in.h)[n] = v;
    sum += v.x + v.y + v.z + v.w;
    squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    row_packs[n] = in.is_layer_norm ? v : scaled(v, n);
  }
  meanwhile();
  const float count = static_cast<float>(in.width);
  if (in.is_layer_norm) {
    const float mean = lamina::cuda::block_sum(sum, scratch) / count;
    squares = 0;
#pragma unroll 1
    for (int n = threadIdx.x; n < packs; n += kStepThreads) {
      float4 v = row_packs[n];
      v = {v.x - mean, v.y - mean, v.z - mean, v.w - mean};
      squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
      row_packs[n] = v;
    }
  }
  squares = lamina::cuda::warp_sum(squares);
  if (threadIdx.x % lamina::cuda::kWarp == 0) scratch[threadIdx.x / lamina::cuda::kWarp] = squares;
  __syncthreads();
  squares = 0;
#pragma unroll
  for (int n = 0; n < kStepWarps; ++n) squares += scratch[n];
  const float r = rsqrtf(squares / count + in.eps);
  if (!in.is_layer_norm) return r;
#pragma unroll 1
  for (int n = threadIdx.x; n < packs; n += kStepThreads) {
    float4 v = row_packs[n];
    v = scaled({v.x * r, v.y * r, v.z * r, v.w * r}, n);
    if (in.bias != nullptr) add_to(v, __ldg(reinterpret_cast<const float4*>(in.bias) + n));
    row_packs[n] = v;
  }
  __syncthreads();
  return 1.0F;
}

/// The product of x with this block's rows of a weight. Groups of 2^lane_bits adjacent lanes (8, 16 or 32) process four
/// rows at a time; the lanes of a group take chunks of eight columns in turn. A result covers kTiles weight rows: 2 for
/// a gate and its up.
template <int kTiles>
struct RowProduct {
  int results;
  int chunks;  ///< chunks of eight columns per row
  int lane_bits;

  static constexpr int kRows = 4;
  static constexpr int kResults = kRows / kTiles;

  __device__ int groups() const { return kStepThreads >> lane_bits; }
  __device__ int group() const { return static_cast<int>(threadIdx.x) >> lane_bits; }
  __device__ int lane() const { return static_cast<int>(threadIdx.x) & ((1 << lane_bits) - 1); }

  /// Copies the rows to shared memory as [results, kTiles, chunks]. Each thread copies exactly the chunks that it reads
  /// later.
  template <class F>
  __device__ void stage(uint4* to, const F& row_at) const {
#pragma unroll 1
    for (int row = group(); row < results; row += groups()) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const uint4* from = row_at(row, t);
        const uint32_t address = lamina::cuda::shared_address(to + (row * kTiles + t) * chunks);
#pragma unroll 1
        for (int c = lane(); c < chunks; c += 1 << lane_bits)
          lamina::cuda::cp_async_16(address + c * 16, from + c, true);
      }
    }
  }

  /// Multiplies the staged rows by x, which holds 8·chunks floats. Calls put(result, sums, turn) for each result in
  /// several lanes, with turns 0 … put_turns() − 1. A thread with fewer rows than others repeats its first row or
  /// skips, because the copies of other threads may not have arrived.
  template <class P>
  __device__ void multiply(const uint4* staged, const float* x, const P& put) const {
    const auto* x_packs = reinterpret_cast<const float4*>(x);
    const int half = 1 << lane_bits >> 1;
    const bool high = (lane() & half) != 0;
    const bool odd = (lane() & half / 2) != 0;
    const int begin = group() < results ? lane() : chunks;
#pragma unroll 1
    for (int first = 0; first < results; first += groups() * kResults) {  // uniform loop bounds
      int from[kRows];
      float sums[kRows] = {};
#pragma unroll
      for (int n = 0; n < kRows; ++n) {
        const int result = first + n / kTiles * groups() + group();
        from[n] = ((result < results ? result : group()) * kTiles + n % kTiles) * chunks;
      }
#pragma unroll 1
      for (int c = begin; c < chunks; c += 1 << lane_bits) {
        uint4 words[kRows];
#pragma unroll
        for (int n = 0; n < kRows; ++n) words[n] = staged[from[n] + c];
        const float4 a = x_packs[2 * c];
        const float4 b = x_packs[2 * c + 1];
#pragma unroll
        for (int n = 0; n < kRows; ++n) {
          float& sum = sums[n];
          const uint4& w = words[n];
          sum = fmaf(a.x, __uint_as_float(w.x << 16), sum);
          sum = fmaf(a.y, __uint_as_float(w.x & 0xffff0000U), sum);
          sum = fmaf(a.z, __uint_as_float(w.y << 16), sum);
          sum = fmaf(a.w, __uint_as_float(w.y & 0xffff0000U), sum);
          sum = fmaf(b.x, __uint_as_float(w.z << 16), sum);
          sum = fmaf(b.y, __uint_as_float(w.z & 0xffff0000U), sum);
          sum = fmaf(b.z, __uint_as_float(w.w << 16), sum);
          sum = fmaf(b.w, __uint_as_float(w.w & 0xffff0000U), sum);
        }
      }
      // Butterfly reduction: in each step a lane passes on half of its sums. The last one left is that of row 2·high +
      // odd.
      using lamina::cuda::kAllLanes;
      const float even_rows = (high ? sums[2] : sums[0]) + __shfl_xor_sync(kAllLanes, high ? sums[0] : sums[2], half);
      const float odd_rows = (high ? sums[3] : sums[1]) + __shfl_xor_sync(kAllLanes, high ? sums[1] : sums[3], half);
      float sum = (odd ? odd_rows : even_rows) + __shfl_xor_sync(kAllLanes, odd ? even_rows : odd_rows, half / 2);
#pragma unroll 1
      for (int step = half / 4; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
      const int row = (high ? 2 : 0) + (odd ? 1 : 0);
      const int result = first + row / kTiles * groups() + group();
      float all[kTiles] = {sum};
      int turn = lane() & (half / 2 - 1);
      if constexpr (kTiles == 2) {
        const float other = __shfl_xor_sync(kAllLanes, sum, half / 2);
        all[0] = odd ? other : sum;
        all[1] = odd ? sum : other;
        turn += odd ? half / 2 : 0;
      }
      if (result < results) put(result, all, turn);
    }
  }
  __device__ int put_turns() const { return (1 << lane_bits) / kResults; }
};

/// Shared memory that a block may use at most.
inline size_t most_step_bytes(const Device& device) {
  constexpr int kMost = 160 * 1024;
  constexpr int kFixed = 1024;  // static shared memory of the kernels
  int limit = 0;
  LAMINA_CUDA(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index()), "decoding");
  return static_cast<size_t>(std::max(std::min(kMost, limit - kFixed), 0));
}

inline int ceil_div(int count, int each) { return (count + each - 1) / each; }

/// The number of lanes per row (as a power of two) that needs the fewest instructions for this many weight rows.
inline int lane_bits_for(int rows, int chunks) {
  int best = 5;
  int least = 0;
  for (int bits = 5; bits >= 3; --bits) {
    const int passes = ceil_div(rows, (kStepThreads >> bits) * RowProduct<1>::kRows);
    const int instructions = passes * (ceil_div(chunks, 1 << bits) * 76 + 30 + 4 * bits);
    if (bits < 5 && instructions >= least) continue;
    best = bits;
    least = instructions;
  }
  return best;
}

inline const uint4* packs_of(const Tensor& weight) { return static_cast<const uint4*>(weight.raw()); }

/// True if the kernels support the residual stream and the other tensors.
inline bool supports_sublayer_step(const ResidualInput& stream, std::initializer_list<Tensor> others) {
  constexpr int64_t kWidest = 8192;
  const auto aligned = [](const Tensor& tensor) {
    return !tensor.defined() || reinterpret_cast<uintptr_t>(tensor.raw()) % sizeof(uint4) == 0;
  };
  const int64_t width = stream.x.dim(0);
  return lamina::cuda::has_dependent_launch(stream.x.device()) && width % 8 == 0 && width <= kWidest &&
         aligned(stream.x) && aligned(stream.residual) && aligned(stream.norm.weight) && aligned(stream.norm.bias) &&
         std::all_of(others.begin(), others.end(), aligned);
}

inline StepInput step_input(const ResidualInput& stream) {
  using lamina::cuda::device_data;
  return {.x = device_data<float>(stream.x),
          .parts = device_data<float>(stream.residual),
          .h = device_data<float>(stream.h),
          .scale = device_data<float>(stream.norm.weight),
          .bias = device_data<float>(stream.norm.bias),
          .offset = static_cast<float>(stream.norm.options.weight_offset),
          .eps = static_cast<float>(stream.norm.options.eps),
          .width = static_cast<int>(stream.x.dim(0)),
          .n_parts = stream.residual.defined() ? static_cast<int>(stream.residual.dim(0)) : 0,
          .is_layer_norm = stream.norm.kind == RowNorm::Kind::layer,
          .weights_just_written = stream.weights_just_written};
}

template <class Params>
void launch_step(void (*kernel)(Params), int clusters, size_t shared, const Device& device, const Params& params,
                 const char* op) {
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)), op);
  lamina::cuda::launch_dependent_clusters(kernel, kStepBlocks, dim3(static_cast<unsigned>(clusters * kStepBlocks)),
                                          dim3(kStepThreads), shared, device, params);
  lamina::cuda::check_launch(op);
}

}  // namespace lamina::ops::cuda
