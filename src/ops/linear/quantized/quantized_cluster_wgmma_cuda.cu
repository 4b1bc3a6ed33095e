// Products of 49 to 256 16-bit rows of x (tokens) with a quantized weight, by wgmma (sm_90a only). A block multiplies
// 128 or 192 weight rows by 64 or 128 tokens. The blocks of a thread block cluster split the columns, so that small
// weights occupy all SMs; they add their sums through distributed shared memory, in a fixed order. One warp loads x by
// TMA and the quantized weights by bulk copies (cp.async.bulk). Each warpgroup unpacks its 64 weight rows of a step to
// a 16-bit tile in shared memory while its products of the previous step run. Unpacked weights are rounded to the type
// of x.
//
// The kernel requests its first weights before the previous kernel ends. That is safe, because only memory copies write
// quantized weights (quantize()), and a launch never overlaps those.
#include "lamina/ops/linear/quantized/cluster_tiles.cuh"
#include "lamina/ops/linear/quantized/dequantize.cuh"

namespace lamina::ops::cuda {
namespace cluster_tiles {

inline constexpr int kStepBlocks = kStep / kQuantizedBlock;
inline constexpr int kTileGroups = 64 / kQuantizedRows;  // groups of 16 weight rows per warpgroup
inline constexpr int kScaleBytes = kQuantizedRows * 2;   // bytes of the scales of a block

struct QuantizedProduct {
  Product product;
  QuantizedGroups weights;
  int blocks;  ///< number of blocks of 32 columns
  int second;  ///< number of groups from the gates to the ups
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
  static constexpr int kTileBytes = 64 * kRow;          // bytes of an unpacked tile of a warpgroup
  static constexpr int kTiles = kStages * kStageBytes;  // offset of [2][kGroups] unpacked tiles, after the ring
  static constexpr int kShared = 1024 + std::max(kTiles + 2 * kGroups * kTileBytes, Base::kSums);
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
  /// Loads all steps; the weights of the first kStages have already been requested. The whole warp must call it.
  __device__ void run(int begin, int end) const {
    Ring<kStages> stage;
    for (int step = begin; step < end; ++step) {
      if (step - begin >= kStages) {
        barrier_wait(empty_ + stage.index * 8, stage.parity ^ 1);
        weights(step, stage.index);
      }
      if (lane_ == 0) {
        tma_load(ring_ + stage.index * P::kStageBytes, p_.product.x, full_ + stage.index * 8, step * kStep,
                 static_cast<int64_t>(blockIdx.y) * P::kTokens);
      }
      stage.next();
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

/// Converts four numbers of a weight row to T and multiplies them by the scale. In q4 the numbers are in the lower
/// halves of the bytes.
template <QuantizedFormat kFormat, class T>
__device__ inline uint2 scaled_four(uint32_t bytes, __half scale) {
  uint2 pairs;
  unpack_pairs<kFormat, T>(bytes, pairs.x, pairs.y);
  const auto times = [&](uint32_t pair) {
    if constexpr (std::is_same_v<T, __half>) {
      const __half2 found = __hmul2(*reinterpret_cast<const __half2*>(&pair), __half2{scale, scale});
      return *reinterpret_cast<const uint32_t*>(&found);
    } else {
      const float factor = __half2float(scale);
      const __nv_bfloat162 found =
          __floats2bfloat162_rn(__uint_as_float(pair << 16) * factor, __uint_as_float(pair & 0xffff0000U) * factor);
      return *reinterpret_cast<const uint32_t*>(&found);
    }
  };
  return {times(pairs.x), times(pairs.y)};
}

/// Unpacks 64 weight rows of a stage to `tile`, which has TMA's 128-byte swizzle. The stage has `count` blocks of
/// columns; columns beyond become zero. A thread takes 32 columns of a row.
template <QuantizedFormat kFormat, class T, class P>
__device__ inline void unpack_tile(const unsigned char* stage, int count, int group, unsigned char* tile) {
  constexpr bool kBytes = kFormat == QuantizedFormat::q8;
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  const int row = thread % kQuantizedRows;
  const int block = thread / kQuantizedRows % kStepBlocks;
  const int local = thread / (kQuantizedRows * kStepBlocks);
  const int at = (group * kTileGroups + local) * kStepBlocks + block;
  const auto* words = reinterpret_cast<const uint32_t*>(stage + P::kNumbers + at * P::kBlock) + row;
  __half scale = *reinterpret_cast<const __half*>(stage + P::kScales + at * kScaleBytes + row * 2);
  if (block >= count) scale = __half(0.0F);
  uint32_t held[kBytes ? 8 : 4];
#pragma unroll
  for (int n = 0; n < (kBytes ? 8 : 4); ++n) held[n] = words[n * kQuantizedRows];
  const int tile_row = local * kQuantizedRows + row;
#pragma unroll
  for (int chunk = 0; chunk < 4; ++chunk) {  // chunks of eight columns
    uint4 eight;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int quarter = chunk * 2 + half;
      const uint32_t word = kBytes ? held[quarter] : (held[quarter % 4] >> (quarter >= 4 ? 4 : 0)) & 0x0f0f0f0fU;
      const uint2 four = scaled_four<kFormat, T>(word, scale);
      (half == 0 ? eight.x : eight.z) = four.x;
      (half == 0 ? eight.y : eight.w) = four.y;
    }
    *reinterpret_cast<uint4*>(tile + tile_row * kRow + (((block * 4 + chunk) ^ (tile_row & 7)) << 4)) = eight;
  }
}

template <QuantizedFormat kFormat, class T, class P, int kGroups, int kBlocks>
__device__ inline void multiply_quantized(AccumulatorTile<1, kBlocks>& sums, int blocks, unsigned char* ring,
                                          uint32_t full, uint32_t empty, int begin, int end) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const bool is_elected = threadIdx.x % kGroupThreads == 0;
  Ring<kStages> stage;
  uint32_t before = 0;  // the `empty` barrier of the stage that the running products read
  for (int step = begin; step < end; ++step) {
    barrier_wait(full + stage.index * 8, stage.parity);
    unsigned char* from = ring + stage.index * P::kStageBytes;
    // The products of two steps ago, which read this tile, have completed.
    unsigned char* tile = ring + P::kTiles + ((step - begin) % 2 * kGroups + group) * P::kTileBytes;
    unpack_tile<kFormat, T, P>(from, blocks - step * kStepBlocks, group, tile);
    fence_async_proxy();
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kGroupThreads) : "memory");
    const uint64_t a = smem_descriptor(shared_address(tile));
    const uint64_t b = smem_descriptor(shared_address(from));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kStep / 16; ++k) {
      multiply_shared<T, kKMajor, kKMajor, kBlocks>(sums, a + k * kStepKMajor, b + k * kStepKMajor,
                                                    step > begin || k > 0);
    }
    wgmma_commit();
    wgmma_wait<1>();
    if (is_elected && step > begin) barrier_arrive(before);
    before = empty + stage.index * 8;
    stage.next();
  }
  wgmma_wait();
  fence_registers(sums);
}

template <QuantizedFormat kFormat, class T, int kGroups, int kBlocks, int kParts>
__global__ void __launch_bounds__(QuantizedPlan<kFormat, kGroups, kBlocks, kParts>::kThreads, 1)
    quantized_cluster_kernel(const __grid_constant__ QuantizedProduct p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using P = QuantizedPlan<kFormat, kGroups, kBlocks, kParts>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const int thread = static_cast<int>(threadIdx.x);
  const uint32_t full = shared_address(memory);
  const uint32_t empty = full + kStages * 8;
  unsigned char* ring = memory + 1024;
  const int split = static_cast<int>(blockIdx.x) % p.product.splits;
  const int begin = split * p.product.steps / p.product.splits;
  const int end = (split + 1) * p.product.steps / p.product.splits;
  if (thread == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(full + i * 8, 1);
      barrier_init(empty + i * 8, kGroups);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const bool loads = thread >= kGroups * kGroupThreads;
  AccumulatorTile<1, kBlocks> sums;
  if (loads) {
    const QuantizedLoader<P, kParts> loader(p, shared_address(ring), full, empty);
    for (int n = 0; n < kStages && begin + n < end; ++n) loader.weights(begin + n, n);
    grid_dependency_wait();
    loader.run(begin, end);
    __syncwarp();
  } else {
    grid_dependency_wait();
    multiply_quantized<kFormat, T, P, kGroups, kBlocks>(sums, p.blocks, ring, full, empty, begin, end);
  }
  __syncthreads();                                  // all products have completed
  auto* by_token = reinterpret_cast<float*>(ring);  // [tokens][kPitch]
  if (!loads) put_sums<P, kBlocks>(sums, by_token);
  add_splits<T, P, kParts, kQuantizedRows>(p.product, by_token);
#endif
}

template <QuantizedFormat kFormat, class T, int kGroups, int kBlocks, int kParts>
bool launch_quantized(const QuantizedLinear& args, QuantizedProduct p) {
  using P = QuantizedPlan<kFormat, kGroups, kBlocks, kParts>;
  constexpr const char* kOp = "quantized_linear";
  const Device& device = args.x.device();
  constexpr bool kBrain = std::is_same_v<T, __nv_bfloat16>;
  if (!encode_tensor_map<2>(p.product.x,
                            {args.x.raw(), {args.weight.in, args.x.dim(0)}, {kStep, P::kTokens}, kBrain})) {
    return false;
  }
  const int tiles = (p.product.out + P::kOutputs - 1) / P::kOutputs;
  const int across = (p.product.rows + P::kTokens - 1) / P::kTokens;
  p.product.splits = splits_of(tiles * across, p.product.steps, device);
  const auto kernel = quantized_cluster_kernel<kFormat, T, kGroups, kBlocks, kParts>;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, P::kShared), kOp);
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100), kOp);
  launch_dependent_clusters(kernel, p.product.splits,
                            dim3(static_cast<unsigned>(tiles * p.product.splits), static_cast<unsigned>(across)),
                            dim3(P::kThreads), P::kShared, device, p);
  check_launch(kOp);
  return true;
}

template <QuantizedFormat kFormat, class T>
bool launch_quantized_sizes(const QuantizedLinear& args, const QuantizedProduct& p, bool gated) {
  const int64_t across = (p.product.rows + 127) / 128;
  const bool few = p.product.rows <= 64;
  if (gated) {
    if ((p.product.out + 63) / 64 * across <= sm_count(args.x.device())) {
      return few ? launch_quantized<kFormat, T, 2, 8, 2>(args, p) : launch_quantized<kFormat, T, 2, 16, 2>(args, p);
    }
    return few ? launch_quantized<kFormat, T, 3, 8, 2>(args, p) : launch_quantized<kFormat, T, 3, 16, 2>(args, p);
  }
  return few ? launch_quantized<kFormat, T, 2, 8, 1>(args, p) : launch_quantized<kFormat, T, 2, 16, 1>(args, p);
}

inline bool run_quantized(const QuantizedLinear& args, bool gated, Gate gate, const GateOptions& options) {
  const Device& device = args.x.device();
  const DType type = args.x.dtype();
  const QuantizedWeight& weight = args.weight;
  const auto is_aligned = [](const Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.raw()) % 16 == 0; };
  constexpr int64_t kMost = 1 << 20;  // columns and groups; then indices fit 32 bits
  const bool fits = (type == DType::bf16 || type == DType::f16) && has_dependent_launch(device) &&
                    has_wgmma(device, "quantized_linear") && args.x.dim(0) <= kMostRows && weight.in > 0 &&
                    weight.in % 8 == 0 && weight.in <= kMost && weight.groups() <= kMost && args.y.dim(1) % 4 == 0 &&
                    is_aligned(args.x) && is_aligned(weight.data) && is_aligned(args.y) &&
                    (!gated || (!options.interleaved && weight.out % (2 * QuantizedWeight::kRows) == 0));
  if (!fits) return false;
  const QuantizedProduct p{.product = {.x = {},
                                       .bias = args.bias.defined() ? args.bias.raw() : nullptr,
                                       .is_bias_f32 = true,
                                       .y = args.y.raw(),
                                       .rows = static_cast<int>(args.x.dim(0)),
                                       .out = static_cast<int>(args.y.dim(1)),
                                       .steps = static_cast<int>((weight.in + kStep - 1) / kStep),
                                       .splits = 1,
                                       .activation = args.activation,
                                       .gate = gate,
                                       .unit = GateUnit(options)},
                           .weights = QuantizedGroups(weight),
                           .blocks = static_cast<int>(weight.blocks()),
                           .second = gated ? static_cast<int>(weight.groups() / 2) : 0};
  const bool bytes = weight.format == QuantizedFormat::q8;
  if (type == DType::bf16) {
    return bytes ? launch_quantized_sizes<QuantizedFormat::q8, __nv_bfloat16>(args, p, gated)
                 : launch_quantized_sizes<QuantizedFormat::q4, __nv_bfloat16>(args, p, gated);
  }
  return bytes ? launch_quantized_sizes<QuantizedFormat::q8, __half>(args, p, gated)
               : launch_quantized_sizes<QuantizedFormat::q4, __half>(args, p, gated);
}

}  // namespace cluster_tiles

bool quantized_cluster(const QuantizedLinear& args) {
  return cluster_tiles::run_quantized(args, false, Gate::swiglu, {});
}
bool quantized_gated_cluster(const QuantizedGatedLinear& args) {
  return cluster_tiles::run_quantized(args.product, true, args.gate, args.options);
}

}  // namespace lamina::ops::cuda
