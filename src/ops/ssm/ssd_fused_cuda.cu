// Fused chunked scan in bf16, in one launch. A block takes 32 features of a head through the sequence, in pieces of 64
// positions, with the state [32, n] in f32 registers. Three blocks share an SM, so one computes while another waits. A
// head reads x, b, c and writes y once (b and c of a group come from the L2 cache). States are written only if backward
// needs them.
//
// All products run on tensor cores. c·b stays in registers and becomes the left operand of the next product: (c·b) ∘
// decay · Δ, rounded to bf16, times x. c·Hᵀ uses the state rounded to bf16. In the state update, decay · Δ · x is split
// into three bf16 values, so that the state keeps f32 precision.
#include "lamina/ops/ssm/ssd_mma.cuh"
#include "lamina/ops/ssm/ssd_scan_kernel.h"
#include "lamina/tensor/cuda/async_copy.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers
using namespace ssd;           // NOLINT: kernel helpers

constexpr int kSlice = 32;          // features of a head per block
constexpr int kSliceThreads = 128;  // a warp has 16 positions for y, and 16 features × half of n for the state

/// Layout of shared memory. Rows have kSlice or kN elements plus 16 bytes of padding.
template <int kN>
struct FusedMemory {
  static constexpr int kMixedPitch = (kN + 8) * 2;
  static constexpr int kPitch = (kSlice + 8) * 2;
  static constexpr int kMixed = kPiece * kMixedPitch;
  static constexpr int kX = 2 * kMixed;  // x comes after b and c
  static constexpr int kState = kX + kPiece * kPitch;
  static constexpr int kDecays = kState + kSlice * kMixedPitch;
  static constexpr int kBytes = kDecays + ChunkDecays::kBytes;
};

struct SsdForwardArgs {
  SsdShape shape;
  SsdStepSize size;
  const Half *x, *dt, *b, *c;
  const float *a, *d;  // d may be null
  Half* y;
  float* state;   // [batch, heads, p, n]: initial state; overwritten by the last
  float* states;  // [batch, chunks, heads, p, n]: states before each chunk, or null
};

/// Splits `pair` ∘ weights into parts[0] + parts[1] + parts[2], each rounded to bf16.
__device__ inline void split_pair(uint32_t pair, float2 weights, uint32_t (&parts)[3]) {
  float low = low_of(pair) * weights.x;
  float high = high_of(pair) * weights.y;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    parts[i] = rounded_pair(low, high);
    low -= low_of(parts[i]);
    high -= high_of(parts[i]);
  }
}

template <int kN>
struct FusedBlock {
  using Memory = FusedMemory<kN>;

  const SsdForwardArgs& args;
  int64_t entry, head;
  int features;  ///< features of this block
  int64_t group;
  unsigned char* memory;
  uint32_t shared;
  int lane, warp;
  int row, side;  ///< which 16 features and which half of n of the state this warp handles

  __device__ ChunkDecays decays() const { return ChunkDecays(memory + Memory::kDecays); }
  /// Index of `feature` of this head at position t.
  __device__ int64_t x_at(int64_t t, int64_t feature) const {
    return ((entry * args.shape.seq + t) * args.shape.heads + head) * args.shape.p + feature;
  }

  __device__ void copy(int64_t first, int64_t feature) const {
    const SsdShape& shape = args.shape;
    constexpr int kPacks = kN / 8;
    const int packs = static_cast<int>(shape.n / 8);
    for (int i = threadIdx.x; i < kPiece * kPacks; i += kSliceThreads) {
      const int r = i / kPacks;
      const int pack = i % kPacks;
      if (pack >= packs) continue;
      const bool inside = first + r < shape.seq;
      const int64_t from = inside ? ((entry * shape.seq + first + r) * shape.groups + group) * shape.n + pack * 8 : 0;
      const uint32_t place = shared + r * Memory::kMixedPitch + pack * 16;
      cp_async_16(place, args.b + from, inside);
      cp_async_16(place + Memory::kMixed, args.c + from, inside);
    }
    for (int i = threadIdx.x; i < kPiece * (kSlice / 8); i += kSliceThreads) {
      const int r = i / (kSlice / 8);
      const int pack = i % (kSlice / 8);
      if (pack * 8 >= features) continue;
      const bool inside = first + r < shape.seq;
      const int64_t from = inside ? x_at(first + r, feature) + pack * 8 : 0;
      cp_async_16(shared + Memory::kX + r * Memory::kPitch + pack * 16, args.x + from, inside);
    }
    cp_async_commit();
  }

  /// The step size Δ at position t; 0 past the end, so that the state does not change.
  __device__ float step_at(int64_t t) const {
    if (t >= args.shape.seq) return 0.0F;
    const float raw = to_float(args.dt[(entry * args.shape.seq + t) * args.shape.heads + head]);
    return args.size.clamped(args.size.soft(args.size.raw(raw, head)));
  }

  /// Calls fn(j, i, feature within the block, column) for each pair of the state that this lane holds.
  template <class F>
  __device__ void each_pair(const F& fn) const {
#pragma unroll
    for (int j = 0; j < kN / 16; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int feature = row * 16 + lane / 4 + half * 8;
        const int column = side * (kN / 2) + j * 8 + lane % 4 * 2;
        if (feature < features && column < args.shape.n) fn(j, half * 2, feature, column);
      }
    }
  }
  __device__ void put_state(const float (&h)[kN / 16][4], float* to) const {
    each_pair([&](int j, int i, int feature, int column) {
      *reinterpret_cast<float2*>(to + feature * args.shape.n + column) = make_float2(h[j][i], h[j][i + 1]);
    });
  }

  /// Computes y of 16 positions, without d · x. sums[2·i + h] are the columns from 16·i + 8·h on.
  __device__ void find_y(float (&sums)[4][4]) const {
    const uint32_t b = shared;
    const uint32_t c = b + Memory::kMixed;
    const uint32_t x = shared + Memory::kX;
    const LdmatrixLane down = LdmatrixLane::downwards(lane);
    const LdmatrixLane right = LdmatrixLane::rightwards(lane);
    const ChunkDecays n = decays();
    float pairs[8][4] = {};
#pragma unroll
    for (int k = 0; k < kN; k += 16) {
      uint32_t left[4];
      uint32_t other[4];
      ldmatrix_x4(left, down.at(c + warp * 16 * Memory::kMixedPitch + k * 2, Memory::kMixedPitch));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i > warp) continue;
        ldmatrix_x4(other, right.at(b + i * 16 * Memory::kMixedPitch + k * 2, Memory::kMixedPitch));
        mma_m16n8k16<Half>(pairs[2 * i], left, other[0], other[1]);
        mma_m16n8k16<Half>(pairs[2 * i + 1], left, other[2], other[3]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        ldmatrix_x4(other,
                    right.at(shared + Memory::kState + i * 16 * Memory::kMixedPitch + k * 2, Memory::kMixedPitch));
        mma_m16n8k16<Half>(sums[2 * i], left, other[0], other[1]);
        mma_m16n8k16<Half>(sums[2 * i + 1], left, other[2], other[3]);
      }
    }
    const int t = warp * 16 + lane / 4;
    const float decayed[2] = {n.sum[t], n.sum[t + 8]};
    const float from_start[2] = {fast_exp2(decayed[0]), fast_exp2(decayed[1])};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[j][i] *= from_start[i / 2];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i > warp) continue;
      uint32_t left[4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int s = i * 16 + h * 8 + lane % 4 * 2;
        const float2 sum = *reinterpret_cast<const float2*>(n.sum + s);
        const float2 step = *reinterpret_cast<const float2*>(n.step + s);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float* pair = pairs[2 * i + h] + 2 * r;
          const float low = s <= t + r * 8 ? pair[0] * (fast_exp2(decayed[r] - sum.x) * step.x) : 0.0F;
          const float high = s < t + r * 8 ? pair[1] * (fast_exp2(decayed[r] - sum.y) * step.y) : 0.0F;
          left[2 * h + r] = rounded_pair(low, high);
        }
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        uint32_t other[4];
        ldmatrix_x4_trans(other, down.at(x + i * 16 * Memory::kPitch + j * 32, Memory::kPitch));
        mma_m16n8k16<Half>(sums[2 * j], left, other[0], other[1]);
        mma_m16n8k16<Half>(sums[2 * j + 1], left, other[2], other[3]);
      }
    }
  }

  __device__ void put_y(int64_t first, int64_t feature, const float (&sums)[4][4]) const {
    const unsigned char* x = memory + Memory::kX;
    const float skip = args.d != nullptr ? args.d[head] : 0.0F;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int t = warp * 16 + lane / 4 + r * 8;
      if (first + t >= args.shape.seq) continue;
      Half* to = args.y + x_at(first + t, feature);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = j * 8 + lane % 4 * 2;
        if (column >= features) continue;
        const uint32_t own = *reinterpret_cast<const uint32_t*>(x + t * Memory::kPitch + column * 2);
        *reinterpret_cast<uint32_t*>(to + column) =
            rounded_pair(fmaf(skip, low_of(own), sums[j][2 * r]), fmaf(skip, high_of(own), sums[j][2 * r + 1]));
      }
    }
  }

  __device__ void move_state(float (&h)[kN / 16][4]) const {
    const uint32_t b = shared;
    const uint32_t x = shared + Memory::kX;
    const LdmatrixLane down = LdmatrixLane::downwards(lane);
    const LdmatrixLane right = LdmatrixLane::rightwards(lane);
    const ChunkDecays n = decays();
    const float whole = *n.whole;
#pragma unroll
    for (int j = 0; j < kN / 16; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) h[j][i] *= whole;
    }
#pragma unroll
    for (int i = 0; i < kPiece; i += 16) {
      uint32_t taken[4];
      uint32_t left[3][4];
      ldmatrix_x4_trans(taken, right.at(x + i * Memory::kPitch + row * 32, Memory::kPitch));
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        uint32_t parts[3];
        const int t = i + k / 2 * 8 + lane % 4 * 2;
        split_pair(taken[k], make_float2(n.step[t] * n.to_end[t], n.step[t + 1] * n.to_end[t + 1]), parts);
#pragma unroll
        for (int part = 0; part < 3; ++part) left[part][k] = parts[part];
      }
#pragma unroll
      for (int j = 0; j < kN / 2; j += 16) {
        uint32_t other[4];
        ldmatrix_x4_trans(other, down.at(b + i * Memory::kMixedPitch + side * kN + j * 2, Memory::kMixedPitch));
#pragma unroll
        for (int part = 2; part >= 0; --part) {
          mma_m16n8k16<Half>(h[j / 8], left[part], other[0], other[1]);
          mma_m16n8k16<Half>(h[j / 8 + 1], left[part], other[2], other[3]);
        }
      }
    }
  }
};

template <int kN>
__global__ void __launch_bounds__(kSliceThreads, 3) ssd_fused_kernel(const __grid_constant__ SsdForwardArgs args) {
  using Memory = FusedMemory<kN>;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  const SsdShape& shape = args.shape;
  const int64_t blocks_of_head = (shape.p + kSlice - 1) / kSlice;
  const int64_t place = blockIdx.x / blocks_of_head;  // [batch, heads]
  const int64_t feature = (blockIdx.x - place * blocks_of_head) * kSlice;
  FusedBlock<kN> block{args,
                       place / shape.heads,
                       place % shape.heads,
                       static_cast<int>(min(shape.p - feature, int64_t{kSlice})),
                       place % shape.heads / shape.in_group,
                       shared_memory,
                       shared_address(shared_memory),
                       static_cast<int>(threadIdx.x) % kWarp,
                       static_cast<int>(threadIdx.x) / kWarp,
                       static_cast<int>(threadIdx.x) / kWarp % 2,
                       static_cast<int>(threadIdx.x) / kWarp / 2};
  for (int i = threadIdx.x; i < Memory::kDecays / 16; i += kSliceThreads) {
    // Copies never overwrite the padding; it stays zero.
    reinterpret_cast<uint4*>(shared_memory)[i] = make_uint4(0, 0, 0, 0);
  }
  __syncthreads();
  float h[kN / 16][4] = {};
  float* state = args.state + (place * shape.p + feature) * shape.n;
  block.each_pair([&](int j, int i, int row, int column) {
    const float2 two = *reinterpret_cast<const float2*>(state + row * shape.n + column);
    h[j][i] = two.x, h[j][i + 1] = two.y;
  });
  block.copy(0, feature);
  const float rate = args.a[block.head];
  const int lane = block.lane;
  float next[2] = {block.step_at(lane), block.step_at(lane + kWarp)};
  for (int64_t first = 0; first < shape.seq; first += kPiece) {
    if (threadIdx.x < kWarp) {
      compute_decays(block.decays(), next[0], next[1], rate, lane);
      next[0] = block.step_at(first + kPiece + lane);
      next[1] = block.step_at(first + kPiece + lane + kWarp);
    }
    if (args.states != nullptr && first % shape.size == 0) {
      const int64_t chunk = (block.entry * shape.chunks + first / shape.size) * shape.heads + block.head;
      block.put_state(h, args.states + (chunk * shape.p + feature) * shape.n);
    }
#pragma unroll
    for (int j = 0; j < kN / 16; ++j) {
      unsigned char* to = shared_memory + Memory::kState + (block.row * 16 + lane / 4) * Memory::kMixedPitch +
                          (block.side * (kN / 2) + j * 8 + lane % 4 * 2) * 2;
      *reinterpret_cast<uint32_t*>(to) = rounded_pair(h[j][0], h[j][1]);
      *reinterpret_cast<uint32_t*>(to + 8 * Memory::kMixedPitch) = rounded_pair(h[j][2], h[j][3]);
    }
    cp_async_wait();
    __syncthreads();
    float sums[4][4] = {};
    block.find_y(sums);
    block.put_y(first, feature, sums);
    block.move_state(h);
    __syncthreads();  // shared memory may now be overwritten
    if (first + kPiece < shape.seq) block.copy(first + kPiece, feature);
  }
  block.put_state(h, state);
}

template <int kN>
void launch_fused(const Device& device, const SsdForwardArgs& args) {
  const auto blocks = args.shape.batch * args.shape.heads * ((args.shape.p + kSlice - 1) / kSlice);
  constexpr int kBytes = FusedMemory<kN>::kBytes;
  LAMINA_CUDA(cudaFuncSetAttribute(ssd_fused_kernel<kN>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
              "ssd_scan");
  ssd_fused_kernel<kN><<<static_cast<unsigned>(blocks), kSliceThreads, kBytes, stream_of(device)>>>(args);
  check_launch("ssd_scan");
}

}  // namespace

bool ssd_fused(const SsdForward& args) {
  const SsdShape shape(args);
  const bool fits = args.x.dtype() == DType::bf16 && shape.n > 0 && shape.n <= 128 && shape.n % 8 == 0 &&
                    shape.p % 8 == 0 && reinterpret_cast<uintptr_t>(args.x.raw()) % 16 == 0;
  if (!fits || (args.states.defined() && shape.chunks > 1 && shape.size % kPiece != 0)) return false;
  const Device& device = args.x.device();
  const Tensor b = args.b.detach().to(DType::bf16);  // b was bf16 originally, so this is lossless
  const Tensor c = args.c.detach().to(DType::bf16);
  const SsdForwardArgs kernel_args{shape,
                                   SsdStepSize(args.dt_bias, args.options),
                                   device_data<bf16>(args.x),
                                   device_data<bf16>(args.dt),
                                   device_data<bf16>(b),
                                   device_data<bf16>(c),
                                   device_data<float>(args.a),
                                   device_data<float>(args.d),
                                   device_data<bf16>(args.y),
                                   args.state.data<float>(),
                                   device_data<float>(args.states)};
  shape.n <= 64 ? launch_fused<64>(device, kernel_args) : launch_fused<128>(device, kernel_args);
  return true;
}

}  // namespace lamina::ops::cuda
