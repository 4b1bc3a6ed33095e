// Products of many 16-bit rows of x with a quantized weight, bound by tensor cores. A thread block computes a tile of
// weight rows × rows of x. Tiles of x pass through a ring in shared memory (cp.async). Each warp loads the numbers of
// its weight rows straight into registers, one step ahead, and turns them into the left operand (dequantize.cuh): two
// warps of a block do so for the same rows, which costs less than passing 16-bit weights through shared memory. x is
// not quantized. Sums of a block of 32 columns are multiplied by its scale in f32.
#include "lamina/ops/activation/activation.cuh"
#include "lamina/ops/linear/quantized/dequantize.cuh"
#include "lamina/tensor/cuda/async_copy.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: what kernels share

constexpr int kStepBlocks = 2;  // blocks of 32 columns per step
constexpr int kStepColumns = kStepBlocks * kQuantizedBlock;
constexpr int kRowBytes = kStepColumns * 2;  // of x, per step
constexpr int kStages = 4;
constexpr int kGroups = 2;  // groups of 16 weight rows per warp

struct TileProduct {
  const void* x;  ///< [rows, in]
  QuantizedGroups weights;
  const float* bias;  ///< or null
  void* y;            ///< [rows, out]
  int in, rows;
  int blocks;  ///< of 32 columns
  Activation activation;
};

/// kDown × kAcross warps, each with kGroups groups of weight rows and kTiles tiles of eight rows of x.
template <int kDown, int kAcross, int kTiles>
struct TileShape {
  static constexpr int kThreads = kDown * kAcross * kWarp;
  static constexpr int kBlockGroups = kDown * kGroups;
  static constexpr int kBlockRows = kAcross * kTiles * 8;
  static constexpr int kStage = kBlockRows * kRowBytes;  ///< bytes
  static constexpr int kShared = kStages * kStage;
};

/// Offset of a 16-byte chunk of a row of x. The swizzle gives the four rows that half a warp reads different banks.
__device__ inline int chunk_at(int row, int chunk) { return row * kRowBytes + (chunk ^ ((row & 3) << 1)) * 16; }

template <int kThreads, int kBlockRows, class T>
__device__ void copy_rows(const TileProduct& p, int first_row, int step, uint32_t to) {
  constexpr int kChunks = kRowBytes / 16;
#pragma unroll
  for (int n = 0; n < kBlockRows * kChunks / kThreads; ++n) {
    const int item = n * kThreads + static_cast<int>(threadIdx.x);
    const int row = item / kChunks;
    const int chunk = item % kChunks;
    const int column = step * kStepColumns + chunk * 8;
    const bool there = first_row + row < p.rows && column < p.in;
    const int64_t at = there ? static_cast<int64_t>(first_row + row) * p.in + column : 0;
    cp_async_16(to + chunk_at(row, chunk), static_cast<const T*>(p.x) + at, there);
  }
}

/// A lane's weights of one step.
template <QuantizedFormat kFormat>
struct StepWeights {
  uint2 first[kStepBlocks][kGroups], second[kStepBlocks][kGroups];
  __half2 scale[kStepBlocks][kGroups];

  __device__ void load(const TileProduct& p, int64_t group, int step, int b, int lane) {
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      first[b][n] = second[b][n] = make_uint2(0, 0);
      scale[b][n] = __half2{};
      if (step * kStepBlocks + b >= p.blocks || group + n >= p.weights.groups) continue;
      const uint8_t* at = p.weights.data + (group + n) * p.weights.group_bytes;
      const HeldBlock<kFormat> held(at, at + p.weights.scale_bytes, step * kStepBlocks + b, lane);
      first[b][n] = held.first;
      second[b][n] = held.second;
      scale[b][n] = held.scale;
    }
  }
};

/// `rows` are this warp's rows of x in shared memory. Loads the weights of the next step as soon as theirs are
/// unpacked.
template <QuantizedFormat kFormat, class T, int kTiles>
__device__ void multiply_step(const TileProduct& p, int64_t group, int step, const unsigned char* rows, int lane,
                              StepWeights<kFormat>& weights, float (&total)[kGroups][kTiles][4]) {
  const int g = lane / 4;
  const int pair = lane % 4;
#pragma unroll
  for (int b = 0; b < kStepBlocks; ++b) {
    uint32_t a[kGroups][2][4];
    float2 scale[kGroups];
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      unpack_block<kFormat, T>(weights.first[b][n], weights.second[b][n], a[n]);
      scale[n] = __half22float2(weights.scale[b][n]);
    }
    weights.load(p, group, step + 1, b, lane);
    const unsigned char* from[2];  // of both steps of the tensor cores; tiles are whole multiples of the swizzle
#pragma unroll
    for (int s = 0; s < 2; ++s) from[s] = rows + chunk_at(g, b * 4 + s * 2 + pair / 2) + pair % 2 * 8;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      uint2 x[2];
#pragma unroll
      for (int s = 0; s < 2; ++s) x[s] = *reinterpret_cast<const uint2*>(from[s] + t * 8 * kRowBytes);
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
        float found[4] = {};
#pragma unroll
        for (int s = 0; s < 2; ++s) mma_m16n8k16<T>(found, a[n][s], x[s].x, x[s].y);
#pragma unroll
        for (int i = 0; i < 4; ++i) total[n][t][i] = fmaf(found[i], i < 2 ? scale[n].x : scale[n].y, total[n][t][i]);
      }
    }
  }
}

/// Two adjacent outputs of a row; the second may be beyond the end.
template <class T>
__device__ void store_outputs(const TileProduct& p, int row, int64_t column, float a, float b) {
  if (row >= p.rows || column >= p.weights.out) return;
  const bool both = column + 1 < p.weights.out;
  if (p.bias != nullptr) {
    a += p.bias[column];
    if (both) b += p.bias[column + 1];
  }
  Vec<T, 2> pair;
  pair.values[0] = from_float<T>(activation_value(p.activation, a));
  pair.values[1] = from_float<T>(activation_value(p.activation, b));
  T* to = static_cast<T*>(p.y) + row * p.weights.out + column;
  if (p.weights.out % 2 == 0) return store_vector_plain(to, pair);
  to[0] = pair.values[0];
  if (both) to[1] = pair.values[1];
}

template <QuantizedFormat kFormat, class T, int kDown, int kAcross, int kTiles>
__global__ void __launch_bounds__(kDown* kAcross* kWarp, kTiles > 4 ? 2 : 3)
    quantized_tiles_kernel(const __grid_constant__ TileProduct p) {
  using S = TileShape<kDown, kAcross, kTiles>;
  extern __shared__ __align__(128) unsigned char ring[];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t group = int64_t{blockIdx.x} * S::kBlockGroups + warp % kDown * kGroups;
  const int block_row = static_cast<int>(blockIdx.y) * S::kBlockRows;
  const int warp_row = warp / kDown * kTiles * 8;
  const int steps = (p.blocks + kStepBlocks - 1) / kStepBlocks;
  StepWeights<kFormat> weights;
#pragma unroll
  for (int b = 0; b < kStepBlocks; ++b) weights.load(p, group, 0, b, lane);
  grid_dependency_wait();
#pragma unroll
  for (int n = 0; n < kStages - 1; ++n) {
    if (n < steps) copy_rows<S::kThreads, S::kBlockRows, T>(p, block_row, n, shared_address(ring + n * S::kStage));
    cp_async_commit();
  }
  float total[kGroups][kTiles][4] = {};
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<kStages - 2>();
    __syncthreads();  // this step's rows are there, and the previous step's have been read
    const int ahead = step + kStages - 1;
    if (ahead < steps) {
      copy_rows<S::kThreads, S::kBlockRows, T>(p, block_row, ahead, shared_address(ring + ahead % kStages * S::kStage));
    }
    cp_async_commit();
    const unsigned char* rows = ring + step % kStages * S::kStage + warp_row * kRowBytes;
    multiply_step<kFormat, T, kTiles>(p, group, step, rows, lane, weights, total);
  }
#pragma unroll
  for (int n = 0; n < kGroups; ++n) {
    const int64_t column = (group + n) * kQuantizedRows + lane / 4 * 2;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const int row = block_row + warp_row + t * 8 + lane % 4 * 2;
      store_outputs<T>(p, row, column, total[n][t][0], total[n][t][2]);
      store_outputs<T>(p, row + 1, column, total[n][t][1], total[n][t][3]);
    }
  }
}

template <QuantizedFormat kFormat, class T, int kDown, int kAcross, int kTiles>
void launch(const Device& device, const TileProduct& p) {
  using S = TileShape<kDown, kAcross, kTiles>;
  constexpr const char* kOp = "quantized_linear";
  const auto kernel = quantized_tiles_kernel<kFormat, T, kDown, kAcross, kTiles>;
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kShared), kOp);
  const dim3 grid(static_cast<unsigned>((p.weights.groups + S::kBlockGroups - 1) / S::kBlockGroups),
                  static_cast<unsigned>((p.rows + S::kBlockRows - 1) / S::kBlockRows));
  launch_dependent(kernel, grid, dim3(S::kThreads), S::kShared, device, p);
  check_launch(kOp);
}

/// Large tiles read x and the weight less often; small ones keep all SMs busy.
template <QuantizedFormat kFormat, class T>
void launch_sizes(const Device& device, const TileProduct& p) {
  const int64_t large = (p.weights.groups + 7) / 8 * ((p.rows + 127) / 128);
  large >= sm_count(device) ? launch<kFormat, T, 4, 2, 8>(device, p) : launch<kFormat, T, 2, 2, 4>(device, p);
}

template <class T>
void launch_format(const Device& device, QuantizedFormat format, const TileProduct& p) {
  format == QuantizedFormat::q8 ? launch_sizes<QuantizedFormat::q8, T>(device, p)
                                : launch_sizes<QuantizedFormat::q4, T>(device, p);
}

}  // namespace

bool quantized_tiles(const QuantizedLinear& args) {
  const Device& device = args.x.device();
  const DType type = args.x.dtype();
  constexpr int64_t kMost = int64_t{1} << 22;  // rows: at most 65,535 blocks of 64
  const bool fits = (type == DType::bf16 || type == DType::f16) && args.x.dim(0) < kMost && args.weight.in > 0 &&
                    args.weight.in % 8 == 0 && args.weight.in <= int64_t{1} << 30 &&
                    reinterpret_cast<uintptr_t>(args.x.raw()) % 16 == 0;
  if (!fits) return false;
  const TileProduct p{.x = args.x.raw(),
                      .weights = QuantizedGroups(args.weight),
                      .bias = device_data<float>(args.bias),
                      .y = args.y.raw(),
                      .in = static_cast<int>(args.weight.in),
                      .rows = static_cast<int>(args.x.dim(0)),
                      .blocks = static_cast<int>(args.weight.blocks()),
                      .activation = args.activation};
  type == DType::bf16 ? launch_format<__nv_bfloat16>(device, args.weight.format, p)
                      : launch_format<__half>(device, args.weight.format, p);
  return true;
}

}  // namespace lamina::ops::cuda
