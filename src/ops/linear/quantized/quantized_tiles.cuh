#pragma once

// Products of 25 to 256 16-bit rows of x (tokens) with a quantized weight, by wgmma (sm_90a only). A block multiplies
// 64 weight rows per warpgroup by 32 to 128 tokens. The blocks of a thread block cluster split the columns, so that
// small weights occupy all SMs; they add their sums through distributed shared memory, in a fixed order. One warp loads
// x by TMA and the quantized weights by bulk copies (cp.async.bulk). The weight is the left operand: each warp unpacks
// its 16 rows into registers while its products of the previous step run, so unpacked weights never go through shared
// memory. They are rounded to the type of x.
//
// The kernel requests its first weights before the previous kernel ends. That is safe, because only memory copies write
// quantized weights (quantize()), and a launch never overlaps those.

#include "lamina/ops/linear/quantized/cluster_tiles.cuh"
#include "lamina/ops/linear/quantized/dequantize.cuh"

namespace lamina::ops::cuda::cluster_tiles {

inline constexpr int kStepBlocks = kStep / kQuantizedBlock;
inline constexpr int kTileGroups = 64 / kQuantizedRows;  // groups of 16 weight rows per warpgroup
inline constexpr int kScaleBytes = kQuantizedRows * 2;   // bytes of the scales of a block

inline constexpr int kMostStages = 16;
inline constexpr int kBarriers = 1024;  // bytes reserved for barriers before the ring

/// Blocks per SM for which the registers suffice.
template <int kGroups, int kBlocks>
constexpr int residents() {
  return kGroups == 1 || (kGroups == 2 && kBlocks <= 8) ? 2 : 1;
}

struct QuantizedProduct {
  Product product;
  QuantizedGroups weights;
  int blocks;  ///< number of blocks of 32 columns
  int second;  ///< number of groups from the gates to the ups
  int stages;  ///< number of stages of the ring
};

/// Position in a ring of pipeline stages, whose number is known at run time.
struct RingPosition {
  int index = 0;
  uint32_t parity = 0;
  __device__ void next(int stages) {
    if (++index == stages) index = 0, parity ^= 1;
  }
};

template <QuantizedFormat kFormat, int kGroups, int kBlocks, int kParts>
struct QuantizedPlan : Plan<kGroups, kBlocks, kParts> {
  using Base = Plan<kGroups, kBlocks, kParts>;
  // Bytes of a block's values.
  static constexpr int kBlock = kQuantizedRows * kQuantizedBlock / (kFormat == QuantizedFormat::q8 ? 1 : 2);
  static constexpr int kLoaded = kGroups * kTileGroups;  // groups of 16 weight rows
  static constexpr int kNumbers = Base::kTokens * kRow;  // offset of the quantized values in a stage; x comes first
  static constexpr int kScales = kNumbers + kLoaded * kStepBlocks * kBlock;
  static constexpr int kStageBytes = (kScales + kLoaded * kStepBlocks * kScaleBytes + 1023) / 1024 * 1024;
  static constexpr int kResident = residents<kGroups, kBlocks>();  // blocks per SM

  static int shared(int stages) { return kBarriers + std::max(stages * kStageBytes, Base::kSums); }
  static_assert(2 * kLoaded <= kWarp, "each lane starts at most one copy");
};

/// The warp that loads x and the quantized weights. In gated products, groups of gate rows and groups of up rows
/// alternate.
template <class P, int kParts>
class QuantizedLoader {
 public:
  __device__ QuantizedLoader(const QuantizedProduct& p, uint32_t ring, uint32_t full, uint32_t empty)
      : p_(p), ring_(ring), full_(full), empty_(empty), lane_(static_cast<int>(threadIdx.x) % kWarp) {
    const int tile = static_cast<int>(blockIdx.x) / p.product.splits;
    const int local = lane_ / 2;
    const int64_t group = kParts == 1 ? static_cast<int64_t>(tile) * P::kLoaded + local
                                      : static_cast<int64_t>(tile) * (P::kLoaded / 2) + local / 2;
    const int64_t groups = kParts == 1 ? p.weights.groups : p.second;
    has_group_ = local < P::kLoaded && group < groups;
    const int64_t at = kParts == 1 ? group : group + local % 2 * p.second;
    from_ = p.weights.data + (has_group_ ? at : 0) * p.weights.group_bytes;
    present_ = __popc(__ballot_sync(kAllLanes, has_group_)) / 2;
  }

  /// Starts the copies of one step's weights. Lane 2n copies the values of group n, lane 2n + 1 its scales.
  __device__ void weights(int step, int stage) const {
    const uint32_t to = ring_ + stage * P::kStageBytes;
    const uint32_t barrier = full_ + stage * 8;
    const int first = step * kStepBlocks;
    const int count = min(kStepBlocks, p_.blocks - first);
    if (lane_ == 0) barrier_expect(barrier, P::kTokens * kRow + present_ * count * (P::kBlock + kScaleBytes));
    __syncwarp();
    if (!has_group_) return;
    const int local = lane_ / 2;
    if (lane_ % 2 == 0) {
      bulk_copy(to + P::kNumbers + local * kStepBlocks * P::kBlock, from_ + p_.weights.scale_bytes + first * P::kBlock,
                count * P::kBlock, barrier);
    } else {
      bulk_copy(to + P::kScales + local * kStepBlocks * kScaleBytes, from_ + first * kScaleBytes, count * kScaleBytes,
                barrier);
    }
  }
  /// Loads all steps; the weights of the first stages have already been requested. The whole warp must call it.
  __device__ void run(int begin, int end) const {
    RingPosition stage;
    for (int step = begin; step < end; ++step) {
      if (step - begin >= p_.stages) {
        barrier_wait(empty_ + stage.index * 8, stage.parity ^ 1);
        weights(step, stage.index);
      }
      if (lane_ == 0) {
        tma_load(ring_ + stage.index * P::kStageBytes, p_.product.x, full_ + stage.index * 8, step * kStep,
                 static_cast<int64_t>(blockIdx.y) * P::kTokens);
      }
      stage.next(p_.stages);
    }
  }

 private:
  const QuantizedProduct& p_;
  uint32_t ring_, full_, empty_;
  int lane_;
  bool has_group_;
  const uint8_t* from_;
  int present_;  // number of groups that exist
};

/// The factors of two weight rows in a block of 32 columns, and the conversion of two numbers of a row to a pair of T.
/// `word` has four adjacent columns of the row; `select` chooses two of them as __byte_perm() does.
template <QuantizedFormat kFormat, class T>
struct PairScale;

template <QuantizedFormat kFormat>
struct PairScale<kFormat, __half> {
  __half2 factor[2];

  __device__ explicit PairScale(__half2 scales) : factor{__low2half2(scales), __high2half2(scales)} {}
  __device__ uint32_t unpack(uint32_t word, uint32_t select, int row) const {
    // 0x6400 is 1024. With a number in its mantissa, that is 1024 plus the number.
    constexpr uint32_t kOffset = kFormat == QuantizedFormat::q8 ? 0x64806480U : 0x64086408U;
    const uint32_t pair = __byte_perm(word, 0x64646464U, select);
    const __half2 found = __hmul2(
        __hsub2(*reinterpret_cast<const __half2*>(&pair), *reinterpret_cast<const __half2*>(&kOffset)), factor[row]);
    return *reinterpret_cast<const uint32_t*>(&found);
  }
};

/// A scale has more bits than bf16, so it is the sum of two numbers; the product is rounded once, up to 2^-16.
template <QuantizedFormat kFormat>
struct PairScale<kFormat, __nv_bfloat16> {
  __nv_bfloat162 upper[2], lower[2];

  __device__ explicit PairScale(__half2 scales) {
    constexpr float kUnit = 8192.0F;  // unpack() computes (q + offset − offset) · 2^−13
    const float both[2] = {__low2float(scales) * kUnit, __high2float(scales) * kUnit};
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const __nv_bfloat16 first = __float2bfloat16_rn(both[row]);
      upper[row] = __bfloat162bfloat162(first);
      lower[row] = __bfloat162bfloat162(__float2bfloat16_rn(both[row] - __bfloat162float(first)));
    }
  }
  __device__ uint32_t unpack(uint32_t word, uint32_t select, int row) const {
    // A byte b as the lower half of a bf16 is the number b · 2^−133: the format's subnormal numbers and its first
    // normal ones have the same spacing. So one fused multiply-add is exact: b · 2^−13 − offset · 2^−13.
    constexpr uint32_t kPower = 0x7b807b80U;                                                  // 2^120
    constexpr uint32_t kOffset = kFormat == QuantizedFormat::q8 ? 0xbc80bc80U : 0xba80ba80U;  // −2^−6, −2^−10
    const uint32_t pair = __byte_perm(word, 0, select);
    const __nv_bfloat162 number =
        __hfma2(*reinterpret_cast<const __nv_bfloat162*>(&pair), *reinterpret_cast<const __nv_bfloat162*>(&kPower),
                *reinterpret_cast<const __nv_bfloat162*>(&kOffset));
    const __nv_bfloat162 found = __hfma2(number, upper[row], __hmul2(number, lower[row]));
    return *reinterpret_cast<const uint32_t*>(&found);
  }
};

/// The left operands of one step: 16 weight rows per warp, 16 columns per product.
using LeftOperands = uint32_t[kStep / 16][4];

/// Unpacks a warp's 16 rows of a stage. Lane l has rows 2g and 2g + 1, g = l / 4, in the place of rows g and g + 8 of
/// the operand. Of every 16 columns it needs 2i, 2i + 1, 2i + 8 and 2i + 9 with i = l % 4, which are halves of two
/// words. `count` blocks of columns exist; the others become zero.
template <QuantizedFormat kFormat, class T, class P>
__device__ inline void unpack_rows(const unsigned char* stage, int count, LeftOperands& left) {
  constexpr bool kBytes = kFormat == QuantizedFormat::q8;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int local = static_cast<int>(threadIdx.x) / kWarp;
  const int g = lane / 4;
  const uint32_t select = lane % 2 == 0 ? 0x4140U : 0x4342U;
  const unsigned char* numbers =
      stage + P::kNumbers + local * kStepBlocks * P::kBlock + lane % 4 / 2 * kQuantizedRows * 4 + g * 8;
  const unsigned char* scales = stage + P::kScales + local * kStepBlocks * kScaleBytes + g * 4;
#pragma unroll
  for (int block = 0; block < kStepBlocks; ++block) {
    uint32_t bits = *reinterpret_cast<const uint32_t*>(scales + block * kScaleBytes);
    if (block >= count) bits = 0;
    const PairScale<kFormat, T> scale(*reinterpret_cast<const __half2*>(&bits));
    uint2 held[kBytes ? 4 : 2];
#pragma unroll
    for (int n = 0; n < (kBytes ? 4 : 2); ++n) {
      held[n] = *reinterpret_cast<const uint2*>(numbers + block * P::kBlock + n * 2 * kQuantizedRows * 4);
    }
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        uint2 words = held[kBytes ? s * 2 + n : n];
        if constexpr (!kBytes) {
          words.x = (s == 0 ? words.x : words.x >> 4) & 0x0f0f0f0fU;
          words.y = (s == 0 ? words.y : words.y >> 4) & 0x0f0f0f0fU;
        }
        left[block * 2 + s][n * 2] = scale.unpack(words.x, select, 0);
        left[block * 2 + s][n * 2 + 1] = scale.unpack(words.y, select, 1);
      }
    }
  }
}

/// Multiplies steps [begin, end). The products of a step run while the warp unpacks the next one.
template <QuantizedFormat kFormat, class T, class P, int kBlocks>
__device__ inline void multiply_quantized(AccumulatorTile<1, kBlocks>& sums, int blocks, const unsigned char* ring,
                                          uint32_t full, uint32_t empty, int begin, int end, int stages) {
  RingPosition stage;
  LeftOperands even, odd;
  const auto take = [&](int step, LeftOperands& left) {
    barrier_wait(full + stage.index * 8, stage.parity);
    unpack_rows<kFormat, T, P>(ring + stage.index * P::kStageBytes, blocks - step * kStepBlocks, left);
  };
  const auto multiply = [&](int step, LeftOperands& left, LeftOperands& next) {
    const int used = stage.index;
    const uint64_t x = smem_descriptor(shared_address(ring + used * P::kStageBytes));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kStep / 16; ++k) {
      multiply_held<T, kKMajor, kBlocks>(sums, left[k], x + k * kStepKMajor, step > begin || k > 0);
    }
    wgmma_commit();
    stage.next(stages);
    if (step + 1 < end) take(step + 1, next);
    wgmma_wait();
#pragma unroll
    for (int k = 0; k < kStep / 16; ++k) fence_registers(left[k]);
    barrier_arrive_warp(empty + used * 8);
  };
  take(begin, even);
#pragma unroll 1
  for (int step = begin; step < end; step += 2) {
    multiply(step, even, odd);
    if (step + 1 < end) multiply(step + 1, odd, even);
  }
  fence_registers(sums);
}

template <QuantizedFormat kFormat, class T, int kGroups, int kBlocks, int kParts>
__global__ void __launch_bounds__(QuantizedPlan<kFormat, kGroups, kBlocks, kParts>::kThreads,
                                  QuantizedPlan<kFormat, kGroups, kBlocks, kParts>::kResident)
    quantized_cluster_kernel(const __grid_constant__ QuantizedProduct p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using P = QuantizedPlan<kFormat, kGroups, kBlocks, kParts>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const int thread = static_cast<int>(threadIdx.x);
  const uint32_t full = shared_address(memory);
  const uint32_t empty = full + kMostStages * 8;
  unsigned char* ring = memory + kBarriers;
  const int split = static_cast<int>(blockIdx.x) % p.product.splits;
  const int begin = split * p.product.steps / p.product.splits;
  const int end = (split + 1) * p.product.steps / p.product.splits;
  if (thread == 0) {
    for (int i = 0; i < p.stages; ++i) {
      barrier_init(full + i * 8, 1);
      barrier_init(empty + i * 8, kGroups * (kGroupThreads / kWarp) * kArrivals);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const bool loads = thread >= kGroups * kGroupThreads;
  AccumulatorTile<1, kBlocks> sums;
  if (loads) {
    const QuantizedLoader<P, kParts> loader(p, shared_address(ring), full, empty);
    for (int n = 0; n < p.stages && begin + n < end; ++n) loader.weights(begin + n, n);
    grid_dependency_wait();
    loader.run(begin, end);
    __syncwarp();
  } else {
    grid_dependency_wait();
    multiply_quantized<kFormat, T, P, kBlocks>(sums, p.blocks, ring, full, empty, begin, end, p.stages);
  }
  __syncthreads();                                  // all products have completed
  auto* by_token = reinterpret_cast<float*>(ring);  // [tokens][kPitch]
  if (!loads) put_sums<P, kBlocks>(sums, by_token);
  add_splits<T, P, kParts, kQuantizedRows>(p.product, by_token);
#endif
}

}  // namespace lamina::ops::cuda::cluster_tiles
