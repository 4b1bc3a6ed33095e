// Products for decoding, with at most eight rows of x. They are limited by reading the weight once or, if it is small,
// by launch latency.
//
// A warp computes eight outputs (for gated units, eight gates and their eight ups). Each lane loads 16 bytes of one
// weight row at a time, so four adjacent lanes read a step of 64 bytes. A lane has eight such loads in flight before it
// uses the first. Every block reads all of x, from the caches. If there are few outputs, up to eight warps of a block
// divide the steps of the same outputs and combine their sums in shared memory. So small products use many SMs and
// finish after one round of loads.
//
// bf16 and f16 use tensor cores with x as the left operand; its rows 8 to 15 are zero. Both operands assign the same
// columns of a step to a lane's elements, so 16 bytes as stored form two fragments. f32 rows of x (with f32 or bf16
// weights) that linear_row_stream does not support use FMAs, with four rows per block. The blocks of the other four
// rows find the weight in the L2 cache. The sum of an output does not depend on the number of rows.
//
// The kernel uses programmatic dependent launch: it prefetches the first part of its weights into the L2 cache while
// the previous kernel still runs. If there is a norm before the product, every block normalizes its rows itself
// (rows_to_norm.cuh).
#include "lamina/ops/linear/fused/few_rows_cuda.h"

#include <algorithm>
#include <bit>

#include "lamina/ops/activation/gated_activation.cuh"
#include "lamina/ops/activation/gated_activation_kernel.h"
#include "lamina/ops/linear/fused/row_stream_cuda.h"
#include "lamina/ops/linear/fused/rows_to_norm.cuh"
#include "lamina/ops/linear/gated_linear_kernel.h"
#include "lamina/ops/linear/norm_linear_kernel.h"
#include "lamina/tensor/cuda/mma.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers
using namespace few_rows;      // NOLINT: kernel helpers

constexpr int kThreads = kWarps * kWarp;
constexpr int kLoads = 8;        // loads in flight per lane
constexpr int kOutputs = 8;      // outputs per warp
constexpr int kStep = 64;        // bytes of a weight row that four lanes read at once: a step
constexpr int kBlocksPerSm = 3;  // resident blocks per SM
constexpr int kSums = kOutputs * static_cast<int>(kFewRows);

constexpr int kWorthChunks = 8;  // with more chunks, normalizing in every block costs more than another launch

struct FewRows {
  const char* x;       ///< [rows, in]
  const char* weight;  ///< [out or 2·out, in]
  const float* bias;   ///< [out or 2·out], or null
  void* y;             ///< [rows, out]
  void* z;             ///< [rows, out], or null
  int64_t row_bytes;   ///< bytes between consecutive weight rows
  int bytes;           ///< bytes per weight row
  int rows, out;
  int next;        ///< number of weight rows from one output to the next
  int second;      ///< number of weight rows from an output's gate to its up
  int split_bits;  ///< 2^split_bits warps divide the steps of the same outputs
  Activation activation;
  Gate gate;
  GateUnit unit;
  FusedNorm norm;

  __host__ __device__ int split() const { return 1 << split_bits; }
  __device__ int groups() const { return kWarps >> split_bits; }  ///< groups of outputs per block
};

template <bool kShared>
__device__ inline uint4 load_of_x(const char* from, bool there) {
  if constexpr (kShared) {
    return there ? *reinterpret_cast<const uint4*>(from) : uint4{};
  } else {
    return load_words(from, there);
  }
}

/// Sums of a warp: products of eight rows of x, in the weight's dtype, with eight weight rows.
template <class W, class X, int kRows>
struct Sums {
  static_assert(std::is_same_v<W, X> && kRows == kFewRows);
  static constexpr bool kHeld = true;  ///< x is loaded together with the weight
  static constexpr int kBlocks = kBlocksPerSm;
  struct Piece {
    uint4 words;
  };
  float even[4] = {};
  float odd[4] = {};

  template <bool kShared>
  __device__ static Piece load(const Part& x, int lane, int at) {
    const int row = lane / 4;
    return {load_of_x<kShared>(x.data + static_cast<uint32_t>(row * x.stride + at), row < x.rows && at < x.bytes)};
  }
  __device__ void add(const uint4& w, const Piece& x) {
    const uint32_t first[4] = {x.words.x, 0, x.words.y, 0};
    const uint32_t second[4] = {x.words.z, 0, x.words.w, 0};
    mma_m16n8k16<W>(even, first, w.x, w.y);
    mma_m16n8k16<W>(odd, second, w.z, w.w);
  }
  /// Writes the sums to [rows of x][outputs].
  __device__ void put(float* to, int lane) const {
    reinterpret_cast<float2*>(to)[lane] = {even[0] + odd[0], even[1] + odd[1]};
  }
};

/// Sums of a lane: products of kRows f32 rows of x with one weight row, over a quarter of the columns.
template <class W, int kRows>
struct Sums<W, float, kRows> {
  static constexpr int kSize = Pack<W>::kSize;
  static constexpr int kScale = static_cast<int>(sizeof(float) / sizeof(W));  ///< bytes of x per byte of the weight
  static constexpr bool kHeld = kRows * kSize <= 4;
  static constexpr int kBlocks = kHeld ? kBlocksPerSm : 2;
  struct Piece {
    uint4 words[kRows][kSize / 4];  ///< f32 values of x
  };
  float sum[kRows] = {};

  template <bool kShared>
  __device__ static Piece load(const Part& x, int /*lane*/, int at) {
    Piece piece;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const bool there = r < x.rows && at < x.bytes;
      const char* from = x.data + static_cast<uint32_t>(r * x.stride + at * kScale);
#pragma unroll
      for (int n = 0; n < kSize / 4; ++n) piece.words[r][n] = load_of_x<kShared>(from + n * 16, there);
    }
    return piece;
  }
  __device__ void add(const uint4& w, const Piece& x) {
    const Pack<W> pack = *reinterpret_cast<const Pack<W>*>(&w);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int n = 0; n < kSize / 4; ++n) {
        sum[r] = fmaf(__uint_as_float(x.words[r][n].x), to_float(pack.values[4 * n]), sum[r]);
        sum[r] = fmaf(__uint_as_float(x.words[r][n].y), to_float(pack.values[4 * n + 1]), sum[r]);
        sum[r] = fmaf(__uint_as_float(x.words[r][n].z), to_float(pack.values[4 * n + 2]), sum[r]);
        sum[r] = fmaf(__uint_as_float(x.words[r][n].w), to_float(pack.values[4 * n + 3]), sum[r]);
      }
    }
  }
  __device__ void put(float* to, int lane) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float whole = sum[r];
      whole += __shfl_xor_sync(kAllLanes, whole, 1);
      whole += __shfl_xor_sync(kAllLanes, whole, 2);
      if (lane % 4 == r % 4) to[r * kOutputs + lane / 4] = whole;
    }
  }
};

/// Which result item number `item` of a block is: row · outputs + output within one of the block's groups of outputs.
struct Place {
  int group;  ///< group within the block
  int row;
  int column;
  bool real;

  __device__ Place(const FewRows& p, const Part& x, int item) {
    group = item / kSums;
    row = item % kSums / kOutputs;
    column = (static_cast<int>(blockIdx.x) * p.groups() + group) * kOutputs + item % kOutputs;
    real = group < p.groups() && row < x.rows && column < p.out;
  }
};

/// kTiles is 2 for gated units (gate and up), else 1.
template <class W, class X, int kRows, int kTiles, bool kNormed>
__global__ void __launch_bounds__(kThreads, Sums<W, X, kRows>::kBlocks)
    few_rows_kernel(const __grid_constant__ FewRows p) {
  using S = Sums<W, X, kRows>;
  constexpr int kInFlight = kLoads / kTiles;
  constexpr int kItems = kWarps * kSums / kThreads;  // most results per thread
  __shared__ alignas(16) float shares[kWarps][kTiles][kSums];
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp;
  const int lane = thread % kWarp;
  const int group = static_cast<int>(blockIdx.x) * p.groups() + (warp >> p.split_bits);
  const int output = group * kOutputs + lane / 4;
  const int limit = output < p.out ? p.bytes : 0;
  const char* weight[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    weight[t] = p.weight + (static_cast<int64_t>(output) * p.next + static_cast<int64_t>(t) * p.second) * p.row_bytes;
  }
  const int first_row = static_cast<int>(blockIdx.y) * kRows;
  const int x_bytes = p.bytes * static_cast<int>(sizeof(X) / sizeof(W));
  Part x{p.x + static_cast<int64_t>(first_row) * x_bytes, p.bytes, x_bytes, min(kRows, p.rows - first_row)};
  const int begin = (warp & (p.split() - 1)) * kStep;
  const int hop = p.split() * kStep;
  const int mine = lane % 4 * 16;
#pragma unroll
  for (int a = 0; a < kInFlight; ++a) {
    const int at = begin + a * hop + mine;
    if (lane % 2 != 0 || at >= limit) continue;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) prefetch_l2(weight[t] + at);
  }
  extern __shared__ __align__(16) char normed[];
  __shared__ float chunk_sums[kNormed ? 2 * kMostChunks : 1];
  BlockRowNorm<X> to_norm(p.norm, x, first_row, normed, chunk_sums);
  if constexpr (kNormed) to_norm.fetch_parameters();
  grid_dependency_wait();

  float bias[kItems][kTiles] = {};
  if (p.bias != nullptr) {
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const Place place(p, x, thread + i * kThreads);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        if (place.real) bias[i][t] = p.bias[static_cast<int64_t>(place.column) * p.next + t * p.second];
      }
    }
  }
  S sums[kTiles];
  constexpr bool kHeld = S::kHeld && !kNormed;
  uint4 w[kInFlight][kTiles];
  const auto load_weight = [&](int a, int at) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) w[a][t] = load_evict_first(weight[t] + at, at < limit);
  };
  if constexpr (kNormed) {
    to_norm.start_copies();
#pragma unroll
    for (int a = 0; a < kInFlight; ++a) load_weight(a, begin + a * hop + mine);
    to_norm.finish();
    __syncthreads();
    x.data = normed;
    x.stride = p.norm.stride;
  }
  for (int first = begin; first < p.bytes; first += kInFlight * hop) {  // uniform loop bounds
    typename S::Piece of_x[kHeld ? kInFlight : 1];
    if (!kNormed || first != begin) {
#pragma unroll
      for (int a = 0; a < kInFlight; ++a) {
        const int at = first + a * hop + mine;
        load_weight(a, at);
        if constexpr (kHeld) of_x[a] = S::template load<false>(x, lane, at);
      }
    }
#pragma unroll
    for (int a = 0; a < kInFlight; ++a) {
      if constexpr (!kHeld) of_x[0] = S::template load<kNormed>(x, lane, first + a * hop + mine);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) sums[t].add(w[a][t], of_x[kHeld ? a : 0]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTiles; ++t) sums[t].put(shares[warp][t], lane);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int item = thread + i * kThreads;
    const Place place(p, x, item);
    if (!place.real) continue;
    float total[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      float sum = 0;
#pragma unroll
      for (int part = 0; part < kWarps; ++part) {
        if (part < p.split()) sum += shares[(place.group << p.split_bits) + part][t][item % kSums];
      }
      total[t] = sum + bias[i][t];
    }
    const int64_t at = static_cast<int64_t>(first_row + place.row) * p.out + place.column;
    if constexpr (kTiles == 1) {
      if (p.z != nullptr) static_cast<X*>(p.z)[at] = from_float<X>(total[0]);
      static_cast<X*>(p.y)[at] = from_float<X>(activation_value(p.activation, total[0]));
    } else {
      static_cast<X*>(p.y)[at] = from_float<X>(gate_value(p.unit, AnyGate<X>{p.gate}, {total[0], total[1]}));
    }
  }
}

/// Chooses how many warps divide the steps of an output: as many as possible while all blocks are resident at once.
int halvings_for(const FewRows& p, int64_t groups, int sm_count) {
  const int64_t places = int64_t{kWarps} * kBlocksPerSm * sm_count;  // number of warps that are resident at once
  int split_bits = 0;
  while ((1 << split_bits) < kWarps && kStep << split_bits < p.bytes && groups << (split_bits + 1) <= places)
    ++split_bits;
  return split_bits;
}

template <class W, class X, int kRows, int kTiles, bool kNormed>
void launch(const Device& device, FewRows& p) {
  const int64_t groups = (int64_t{p.out} + kOutputs - 1) / kOutputs;
  p.split_bits = halvings_for(p, groups, sm_count(device));
  const dim3 grid(static_cast<unsigned>(blocks_for(groups * p.split(), kWarps)),
                  static_cast<unsigned>((p.rows + kRows - 1) / kRows));
  launch_dependent(few_rows_kernel<W, X, kRows, kTiles, kNormed>, grid, dim3(kThreads), kNormed ? p.norm.shared() : 0,
                   device, p);
  check_launch(kNormed ? "norm_linear" : "linear");
}

/// Rows of x per block.
int rows_of_block(DType x, int rows) {
  if (x != DType::f32) return static_cast<int>(kFewRows);
  return rows == 1 ? 1 : 4;
}

template <int kTiles, bool kNormed = false>
void launch_types(const Device& device, DType weight, DType x, FewRows& p) {
  if (x == DType::bf16) return launch<__nv_bfloat16, __nv_bfloat16, kFewRows, kTiles, kNormed>(device, p);
  if (x == DType::f16) return launch<__half, __half, kFewRows, kTiles, kNormed>(device, p);
  const bool one = rows_of_block(x, p.rows) == 1;
  if (weight == DType::f32) {
    return one ? launch<float, float, 1, kTiles, kNormed>(device, p)
               : launch<float, float, 4, kTiles, kNormed>(device, p);
  }
  return one ? launch<__nv_bfloat16, float, 1, kTiles, kNormed>(device, p)
             : launch<__nv_bfloat16, float, 4, kTiles, kNormed>(device, p);
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

/// The arguments shared by the kernels. `out` is 0 if the kernel does not support the case.
FewRows few_rows_of(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y,
                    const GateOptions& options) {
  FewRows p{.x = static_cast<const char*>(x.raw()),
            .weight = static_cast<const char*>(weight.raw()),
            .bias = nullptr,
            .y = y.raw(),
            .z = nullptr,
            .row_bytes = 0,
            .bytes = 0,
            .rows = 0,
            .out = 0,
            .next = 1,
            .second = 0,
            .split_bits = 0,
            .activation = Activation::none,
            .gate = Gate::liglu,
            .unit = GateUnit(options),
            .norm = {}};
  const bool types = x.dtype() == DType::f32 ? weight.dtype() == DType::f32 || weight.dtype() == DType::bf16
                                             : weight.dtype() == x.dtype() && x.dtype() != DType::f64;
  const auto size = static_cast<int64_t>(size_of(weight.dtype()));
  const int64_t bytes = weight.dim(1) * size;
  const auto whole = [](int64_t count) { return count % 16 == 0; };
  constexpr int64_t kMost = int64_t{1} << 26;  // byte offsets into x then fit 32 bits
  if (!types || x.dim(0) > kFewRows || weight.strides()[1] != 1 || bytes == 0 || bytes > kMost ||
      weight.dim(0) > kMost || !whole(bytes) || !whole(weight.strides()[0] * size) || !is_aligned(p.x) ||
      !is_aligned(p.weight)) {
    return p;
  }
  p.bias = device_data<float>(bias);
  p.row_bytes = weight.strides()[0] * size;
  p.bytes = static_cast<int>(bytes);
  p.rows = static_cast<int>(x.dim(0));
  p.out = static_cast<int>(y.dim(1));
  return p;
}

void make_gated(FewRows& p, Gate gate, const GateOptions& options) {
  p.next = options.interleaved ? 2 : 1;
  p.second = options.interleaved ? 1 : p.out;
  p.gate = gate;
}

/// Sets the norm before the product. Returns false if the blocks should not normalize these rows themselves.
bool add_norm(FewRows& p, const NormLinearForward& args) {
  const int row_bytes =
      p.bytes / static_cast<int>(size_of(args.weight.dtype())) * static_cast<int>(size_of(args.x.dtype()));
  const auto rows = static_cast<unsigned>(std::min(p.rows, rows_of_block(args.x.dtype(), p.rows)));
  p.norm = {.residual = static_cast<const char*>(args.residual.defined() ? args.residual.raw() : nullptr),
            .h = static_cast<char*>(args.h.defined() ? args.h.raw() : nullptr),
            .scale = device_data<float>(args.norm.weight),
            .bias = device_data<float>(args.norm.bias),
            .offset = static_cast<float>(args.norm.options.weight_offset),
            .eps = static_cast<float>(args.norm.options.eps),
            .is_layer_norm = args.norm.kind == RowNorm::Kind::layer,
            .parts = args.residual.defined() ? static_cast<int>(args.residual.dim(0)) : 0,
            .row_bits = static_cast<int>(std::bit_width(rows - 1)),
            .stride = FusedNorm::stride_of(row_bytes)};
  const int chunks = (row_bytes + kChunk - 1) / kChunk;
  static_assert(kWorthChunks <= kMostChunks);
  return chunks <= kWorthChunks >> p.norm.row_bits && (p.norm.parts <= 1 || p.rows == 1) &&
         is_aligned(p.norm.residual) && is_aligned(p.norm.h) && is_aligned(p.norm.scale) && is_aligned(p.norm.bias);
}

}  // namespace

bool linear_few_rows(const LinearForward& args) {
  FewRows p = few_rows_of(args.x, args.weight, args.bias, args.y, {});
  if (p.out == 0) return false;
  p.z = args.z.defined() ? args.z.raw() : nullptr;
  p.activation = args.activation;
  launch_types<1>(args.x.device(), args.weight.dtype(), args.x.dtype(), p);
  return true;
}

bool gated_linear_few_rows(const GatedLinearForward& args) {
  FewRows p = few_rows_of(args.x, args.weight, args.bias, args.y, args.options);
  if (p.out == 0) return false;
  make_gated(p, args.gate, args.options);
  launch_types<2>(args.x.device(), args.weight.dtype(), args.x.dtype(), p);
  return true;
}

bool norm_linear_few_rows(const NormLinearForward& args) {
  FewRows p = few_rows_of(args.x, args.weight, args.bias, args.y, args.options);
  if (p.out == 0 || !add_norm(p, args)) return false;
  p.activation = args.activation;
  if (args.gated) make_gated(p, args.gate, args.options);
  args.gated ? launch_types<2, true>(args.x.device(), args.weight.dtype(), args.x.dtype(), p)
             : launch_types<1, true>(args.x.device(), args.weight.dtype(), args.x.dtype(), p);
  return true;
}

}  // namespace lamina::ops::cuda
