// Products of 9 to 48 16-bit rows of x (tokens) with a quantized weight. The division is that of
// fused/weight_slabs.cuh: a block owns a slab of weight rows, and its warps split the columns. Each warp streams its
// columns of the weight and of x through a ring of its own, without block barriers. The numbers of a weight block
// become a 16-bit left operand in registers (dequantize.cuh); x is not quantized. The sums of the warps are added in
// shared memory.
//
// The kernel uses programmatic dependent launch and needs compute capability 9.0. It requests its first weights before
// the previous kernel ends. That is safe, because only memory copies write quantized weights (quantize()), and a launch
// never overlaps those.
#include <algorithm>

#include "lamina/ops/activation/gated_activation.cuh"
#include "lamina/ops/linear/quantized/dequantize.cuh"
#include "lamina/tensor/cuda/async_copy.cuh"
#include "lamina/tensor/cuda/tensor_map.h"
#include "lamina/tensor/cuda/tma.cuh"

namespace lamina::ops::cuda {
namespace quantized_slab {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kStepBlocks = 2;  // blocks of 32 columns per step
constexpr int kStep = kStepBlocks * kQuantizedBlock;
constexpr int kRow = kStep * 2;  // bytes of a row of x per step
constexpr int kScaleBytes = kQuantizedRows * 2;
constexpr int kMostStages = 8;
constexpr int kMostRing = 12 << 10;  // maximum bytes of a warp's ring
constexpr int kBarriers = 1024;      // bytes reserved for barriers before the rings
constexpr int kMostRows = 48;
constexpr int kMostGatedRows = 32;

struct Slabs {
  CUtensorMap x;  ///< [rows, in]
  QuantizedGroups weights;
  const float* bias;  ///< [out or 2·out], or null
  void* y;            ///< [rows, out]
  int rows, out;
  int blocks;  ///< number of blocks of 32 columns
  int steps;   ///< number of steps along the columns
  int stages;  ///< number of stages of a warp's ring
  int second;  ///< number of groups from the gates to the ups
  Activation activation;
  Gate gate;
  GateUnit unit;
};

/// Sizes for kGroups groups of 16 weight rows and 8·kTiles tokens. kParts = 2: half of the groups are gates.
template <QuantizedFormat kFormat, int kGroups, int kTiles, int kParts>
struct Sizes {
  static constexpr int kTokens = 8 * kTiles;
  static constexpr int kSlab = kGroups * kQuantizedRows;
  static constexpr int kOutputs = kSlab / kParts;
  static constexpr int kQuads = kOutputs / 4;
  /// Bytes of a block's values.
  static constexpr int kBlock = kQuantizedRows * kQuantizedBlock / (kFormat == QuantizedFormat::q8 ? 1 : 2);
  static constexpr int kNumbers = kTokens * kRow;  ///< offset of the quantized values in a stage; x comes first
  static constexpr int kScales = kNumbers + kGroups * kStepBlocks * kBlock;
  static constexpr int kStage = (kScales + kGroups * kStepBlocks * kScaleBytes + 1023) / 1024 * 1024;
  static constexpr int kStages = std::clamp(kMostRing / kStage, 2, kMostStages);
  static constexpr int kPitch = kSlab + 4;  ///< floats from one token to the next in a warp's sums
  static constexpr int kSums = kTokens * kPitch * 4;

  __host__ __device__ static int ring(int stages) { return (max(stages * kStage, kSums) + 1023) / 1024 * 1024; }
  static int shared(int stages) { return kBarriers + kWarps * ring(stages); }
};

/// The columns of a slab that one warp multiplies: steps [begin, end).
template <QuantizedFormat kFormat, class T, int kGroups, int kTiles, int kParts>
class WarpSlab {
  using S = Sizes<kFormat, kGroups, kTiles, kParts>;

 public:
  __device__ WarpSlab(const Slabs& p, int begin, int end, char* ring, uint64_t* barriers)
      : p_(p),
        begin_(begin),
        end_(end),
        lane_(static_cast<int>(threadIdx.x) % kWarp),
        memory_(ring),
        ring_(shared_address(ring)),
        barriers_(shared_address(barriers)) {
    if (lane_ == 0) {
      for (int n = 0; n < p.stages; ++n) barrier_init(barriers_ + n * 8, 1);
      fence_barrier_init();
    }
    __syncwarp();
  }
  __device__ void start_weights() const {
    for (int n = 0; n < p_.stages && begin_ + n < end_; ++n) copy_weights(begin_ + n, n);
  }
  __device__ void run() {
    for (int n = 0; n < p_.stages && begin_ + n < end_; ++n) copy_rows(begin_ + n, n);
    int stage = 0;
    uint32_t parity = 0;
#pragma unroll 1
    for (int step = begin_; step < end_; ++step) {
      barrier_wait(barriers_ + stage * 8, parity);
      const char* from = memory_ + stage * S::kStage;
      multiply(from, 0);
      if (step * kStepBlocks + 1 < p_.blocks) multiply(from, 1);
      __syncwarp();
      if (step + p_.stages < end_) {
        copy_weights(step + p_.stages, stage);
        copy_rows(step + p_.stages, stage);
      }
      if (++stage == p_.stages) stage = 0, parity ^= 1;
    }
  }
  /// Writes the sums to [tokens][kPitch].
  __device__ void put(float* to) const {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
        float* at = to + (t * 8 + lane_ % 4 * 2) * S::kPitch + n * kQuantizedRows + lane_ / 4 * 2;
        *reinterpret_cast<float2*>(at) = {sums_[n][t][0], sums_[n][t][2]};
        *reinterpret_cast<float2*>(at + S::kPitch) = {sums_[n][t][1], sums_[n][t][3]};
      }
    }
  }

 private:
  __device__ int64_t group_of(int n) const {
    constexpr int kEach = kGroups / kParts;
    return int64_t{blockIdx.x} * kEach + n % kEach + n / kEach * p_.second;
  }
  /// False for groups beyond the last one. They are not copied, and their sums are not used.
  __device__ bool has_group(int n) const {
    constexpr int kEach = kGroups / kParts;
    return int64_t{blockIdx.x} * kEach + n % kEach < (kParts == 2 ? p_.second : p_.weights.groups);
  }
  __device__ void copy_weights(int step, int stage) const {
    if (lane_ != 0) return;
    const uint32_t to = ring_ + stage * S::kStage;
    const uint32_t barrier = barriers_ + stage * 8;
    const int first = step * kStepBlocks;
    const int count = min(kStepBlocks, p_.blocks - first);
    int groups = 0;
#pragma unroll
    for (int n = 0; n < kGroups; ++n) groups += has_group(n) ? 1 : 0;
    barrier_expect(barrier, S::kTokens * kRow + groups * count * (S::kBlock + kScaleBytes));
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      if (!has_group(n)) continue;
      const uint8_t* group = p_.weights.data + group_of(n) * p_.weights.group_bytes;
      bulk_copy(to + S::kNumbers + n * kStepBlocks * S::kBlock, group + p_.weights.scale_bytes + first * S::kBlock,
                count * S::kBlock, barrier);
      bulk_copy(to + S::kScales + n * kStepBlocks * kScaleBytes, group + first * kScaleBytes, count * kScaleBytes,
                barrier);
    }
  }
  __device__ void copy_rows(int step, int stage) const {
    if (lane_ == 0) tma_load(ring_ + stage * S::kStage, p_.x, barriers_ + stage * 8, step * kStep, 0);
  }
  /// Multiplies block b of a stage.
  __device__ void multiply(const char* stage, int b) {
    const int g = lane_ / 4;
    const int pair = lane_ % 4;
    uint2 x[kTiles][2];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int s = 0; s < 2; ++s) {  // x has TMA's 128-byte swizzle
        const int chunk = (b * 4 + s * 2 + pair / 2) ^ g;
        x[t][s] = *reinterpret_cast<const uint2*>(stage + (t * 8 + g) * kRow + chunk * 16 + pair % 2 * 8);
      }
    }
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      const char* numbers = stage + S::kNumbers + (n * kStepBlocks + b) * S::kBlock + pair * kQuantizedRows * 4 + g * 8;
      const uint2 first = *reinterpret_cast<const uint2*>(numbers);
      uint2 second = make_uint2(0, 0);
      if constexpr (kFormat == QuantizedFormat::q8) {
        second = *reinterpret_cast<const uint2*>(numbers + S::kBlock / 2);
      }
      uint32_t a[2][4];
      unpack_block<kFormat, T>(first, second, a);
      const float2 scale = __half22float2(
          *reinterpret_cast<const __half2*>(stage + S::kScales + (n * kStepBlocks + b) * kScaleBytes + g * 4));
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        float found[4] = {};
#pragma unroll
        for (int s = 0; s < 2; ++s) mma_m16n8k16<T>(found, a[s], x[t][s].x, x[t][s].y);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[n][t][i] = fmaf(found[i], i < 2 ? scale.x : scale.y, sums_[n][t][i]);
      }
    }
  }

  const Slabs& p_;
  int begin_, end_, lane_;
  const char* memory_;
  uint32_t ring_, barriers_;
  float sums_[kGroups][kTiles][4] = {};
};

/// Applies bias and activation or gate to up to four outputs of a token, and stores them.
template <class T, int kParts>
__device__ inline void finish(const Slabs& p, int token, int output, const float4 (&sums)[kParts]) {
  const int count = min(4, p.out - output);
  Vec<T, 4> y{};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    float total[kParts];
#pragma unroll
    for (int t = 0; t < kParts; ++t) {
      total[t] = reinterpret_cast<const float*>(&sums[t])[j];
      if (p.bias != nullptr && j < count) total[t] += p.bias[output + j + t * p.out];
    }
    if constexpr (kParts == 1) {
      y.values[j] = from_float<T>(activation_value(p.activation, total[0]));
    } else {
      y.values[j] = from_float<T>(gate_value(p.unit, AnyGate<T>{p.gate}, {total[0], total[1]}));
    }
  }
  T* to = static_cast<T*>(p.y) + static_cast<int64_t>(token) * p.out + output;
  if (p.out % 4 == 0) return store_vector_plain(to, y);
  for (int j = 0; j < count; ++j) to[j] = y.values[j];
}

template <QuantizedFormat kFormat, class T, int kGroups, int kTiles, int kParts>
__global__ void __launch_bounds__(kThreads) quantized_slabs_kernel(const __grid_constant__ Slabs p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using S = Sizes<kFormat, kGroups, kTiles, kParts>;
  extern __shared__ __align__(1024) char barriers[];
  char* rings = barriers + kBarriers;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp;
  const int ring = S::ring(p.stages);
  char* mine = rings + warp * ring;
  WarpSlab<kFormat, T, kGroups, kTiles, kParts> slab(p, warp * p.steps / kWarps, (warp + 1) * p.steps / kWarps, mine,
                                                     reinterpret_cast<uint64_t*>(barriers) + warp * kMostStages);
  slab.start_weights();
  grid_dependency_wait();
  slab.run();
  slab.put(reinterpret_cast<float*>(mine));
  __syncthreads();
  for (int item = thread; item < p.rows * S::kQuads; item += kThreads) {
    const int token = item / S::kQuads;
    const int first = item % S::kQuads * 4;
    const int output = static_cast<int>(blockIdx.x) * S::kOutputs + first;
    if (output >= p.out) continue;
    float4 sums[kParts] = {};
#pragma unroll
    for (int t = 0; t < kParts; ++t) {
      const char* from = rings + (token * S::kPitch + t * S::kOutputs + first) * 4;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const auto part = *reinterpret_cast<const float4*>(from + w * ring);
        sums[t].x += part.x, sums[t].y += part.y, sums[t].z += part.z, sums[t].w += part.w;
      }
    }
    finish<T, kParts>(p, token, output, sums);
  }
#endif
}

template <QuantizedFormat kFormat, class T, int kGroups, int kTiles, int kParts>
bool launch(const QuantizedLinear& args, Slabs p) {
  using S = Sizes<kFormat, kGroups, kTiles, kParts>;
  constexpr const char* kOp = "quantized_linear";
  const TmaTensor16<2> x{
      args.x.raw(), {args.weight.in, args.x.dim(0)}, {kStep, S::kTokens}, std::is_same_v<T, __nv_bfloat16>};
  if (!encode_tensor_map(p.x, x)) return false;
  p.stages = std::clamp((p.steps + kWarps - 1) / kWarps, 1, S::kStages);
  const auto kernel = quantized_slabs_kernel<kFormat, T, kGroups, kTiles, kParts>;
  const int64_t groups = kParts == 2 ? p.second : p.weights.groups;
  constexpr int kEach = kGroups / kParts;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::shared(S::kStages)), kOp);
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100), kOp);
  launch_dependent(kernel, dim3(static_cast<unsigned>((groups + kEach - 1) / kEach)), dim3(kThreads),
                   static_cast<size_t>(S::shared(p.stages)), args.x.device(), p);
  check_launch(kOp);
  return true;
}

template <QuantizedFormat kFormat, class T, int kGroups, int kParts>
bool launch_tokens(const QuantizedLinear& args, const Slabs& p) {
  if (p.rows <= 16) return launch<kFormat, T, kGroups, 2, kParts>(args, p);
  if constexpr (kParts == 1) {
    if (p.rows > 32) return launch<kFormat, T, kGroups, 6, kParts>(args, p);
  }
  return launch<kFormat, T, kGroups, 4, kParts>(args, p);
}

/// Chooses the slab size. Larger slabs read x less often, but there must be enough blocks for (nearly) all SMs.
template <QuantizedFormat kFormat, class T>
bool launch_slabs(const QuantizedLinear& args, const Slabs& p, bool gated) {
  const int sms = sm_count(args.x.device());
  if (gated) {
    return p.second > 2 * sms ? launch_tokens<kFormat, T, 6, 2>(args, p) : launch_tokens<kFormat, T, 4, 2>(args, p);
  }
  return p.weights.groups >= 4 * sms ? launch_tokens<kFormat, T, 4, 1>(args, p)
                                     : launch_tokens<kFormat, T, 2, 1>(args, p);
}

template <class T>
bool launch_format(const QuantizedLinear& args, const Slabs& p, bool gated) {
  return args.weight.format == QuantizedFormat::q8 ? launch_slabs<QuantizedFormat::q8, T>(args, p, gated)
                                                   : launch_slabs<QuantizedFormat::q4, T>(args, p, gated);
}

bool run_slabs(const QuantizedLinear& args, bool gated, Gate gate, const GateOptions& options) {
  const Device& device = args.x.device();
  const DType type = args.x.dtype();
  const QuantizedWeight& weight = args.weight;
  const auto is_aligned = [](const Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.raw()) % 16 == 0; };
  constexpr int64_t kMost = 1 << 20;  // columns and groups; then indices fit 32 bits
  const bool fits = (type == DType::bf16 || type == DType::f16) && has_dependent_launch(device) &&
                    args.x.dim(0) <= (gated ? kMostGatedRows : kMostRows) && weight.in > 0 && weight.in % 8 == 0 &&
                    weight.in <= kMost && weight.groups() <= kMost && is_aligned(args.x) && is_aligned(weight.data) &&
                    is_aligned(args.y) &&
                    (!gated || (!options.interleaved && weight.out % (2 * QuantizedWeight::kRows) == 0));
  if (!fits) return false;
  const auto blocks = static_cast<int>(weight.blocks());
  const Slabs p{.x = {},
                .weights = QuantizedGroups(weight),
                .bias = device_data<float>(args.bias),
                .y = args.y.raw(),
                .rows = static_cast<int>(args.x.dim(0)),
                .out = static_cast<int>(args.y.dim(1)),
                .blocks = blocks,
                .steps = (blocks + kStepBlocks - 1) / kStepBlocks,
                .stages = 0,
                .second = gated ? static_cast<int>(weight.groups() / 2) : 0,
                .activation = args.activation,
                .gate = gate,
                .unit = GateUnit(options)};
  return type == DType::bf16 ? launch_format<__nv_bfloat16>(args, p, gated) : launch_format<__half>(args, p, gated);
}

}  // namespace quantized_slab

bool quantized_slabs(const QuantizedLinear& args) { return quantized_slab::run_slabs(args, false, Gate::swiglu, {}); }

bool quantized_gated_slabs(const QuantizedGatedLinear& args) {
  return quantized_slab::run_slabs(args.product, true, args.gate, args.options);
}

}  // namespace lamina::ops::cuda
