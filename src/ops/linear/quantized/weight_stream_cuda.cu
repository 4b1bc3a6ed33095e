// Products for decoding, with at most eight rows of x and a quantized weight. Each SM has one block, which owns a
// contiguous range of groups of 16 weight rows. Its warps split the columns; if groups are narrow or many, they are
// divided among teams of warps. Each warp streams its columns by bulk copies (cp.async.bulk) through a ring of its own
// in shared memory, so no block barrier interrupts the stream. The partial sums of the warps are added in an order that
// depends only on the shape of the weight.
//
// The kernel uses programmatic dependent launch and starts its copies before it waits for the previous kernel. That is
// safe, because only memory copies write quantized weights (quantize()), and a launch never overlaps those. About 100
// KB per SM are then in flight; for a small layer with 4-bit weights these are all its weights. The ring leaves room on
// the SM for the previous and the next kernel.
//
// After the wait, every block computes x + residual and its RMS norm, and quantizes the result to shared memory. The
// norm's factor is the same for all columns, so it does not change the 8-bit numbers and is applied to the sums. The
// first block writes x + residual.
#include "lamina/ops/linear/quantized/weight_stream.cuh"

#include <algorithm>

namespace lamina::ops::cuda {
namespace {

using namespace weight_stream;  // NOLINT: kernel helpers

constexpr int kRingBytes = 108 << 10;    // bytes of the rings per block, so that two kernels fit on an SM
constexpr int kSharedBytes = 200 << 10;  // bytes per block, if x takes much of it
constexpr int kSumsBytes = 48 << 10;     // bytes of the sums per block, for eight rows

template <class T>
__device__ float4 load_quad(const T* from, bool there) {
  if constexpr (sizeof(T) == 4) {
    const uint4 words = load_words(from, there);
    return {__uint_as_float(words.x), __uint_as_float(words.y), __uint_as_float(words.z), __uint_as_float(words.w)};
  } else {
    Vec<T, 4> four{};
    if (there) four = *reinterpret_cast<const Vec<T, 4>*>(from);
    return {to_float(four.values[0]), to_float(four.values[1]), to_float(four.values[2]), to_float(four.values[3])};
  }
}
[[maybe_unused]] __device__ inline void add_quad(float4& sum, const float4& v) {
  sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
}

/// Adds the parts of the residual to v in order and rounds the sum to x's dtype. The first block stores it as h.
template <class T, int kRows>
__device__ void add_residual(const Params& p, int column, bool there, float4 (&v)[kRows]) {
  constexpr int kAtOnce = kRows == 1 ? 4 : 1;
  const int64_t size = static_cast<int64_t>(p.rows) * p.in;
#pragma unroll 1
  for (int first = 0; first < p.added; first += kAtOnce) {
    float4 others[kAtOnce][kRows];
#pragma unroll
    for (int a = 0; a < kAtOnce; ++a) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const T* from =
            static_cast<const T*>(p.residual) + (first + a) * size + static_cast<int64_t>(r) * p.in + column;
        others[a][r] = load_quad(from, there && r < p.rows && first + a < p.added);
      }
    }
#pragma unroll
    for (int a = 0; a < kAtOnce; ++a) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) add_quad(v[r], others[a][r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    Vec<T, 4> four;
    four.values[0] = from_float<T>(v[r].x), four.values[1] = from_float<T>(v[r].y);
    four.values[2] = from_float<T>(v[r].z), four.values[3] = from_float<T>(v[r].w);
    v[r] = {to_float(four.values[0]), to_float(four.values[1]), to_float(four.values[2]), to_float(four.values[3])};
    if (blockIdx.x == 0 && there && r < p.rows) {
      store_vector_plain(static_cast<T*>(p.h) + static_cast<int64_t>(r) * p.in + column, four);
    }
  }
}

/// Quantizes four columns per lane; eight lanes form a block of 32.
template <int kOffset>
__device__ Factor quantize_quad(const float4& v, uint32_t& word) {
  // Bit patterns without the sign compare like magnitudes; NaN exceeds all numbers.
  const auto magnitude = [](float x) { return __float_as_uint(x) & 0x7fffffffU; };
  uint32_t most = max(max(magnitude(v.x), magnitude(v.y)), max(magnitude(v.z), magnitude(v.w)));
#pragma unroll
  for (int step = 1; step < 8; step *= 2) most = max(most, __shfl_xor_sync(kAllLanes, most, step));
  const XScale scale(__uint_as_float(most));
  word = four_bytes(scale.round(v.x), scale.round(v.y), scale.round(v.z), scale.round(v.w));
  int sum = __dp4a(static_cast<int>(word), 0x01010101, 0);
#pragma unroll
  for (int step = 1; step < 8; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  return {scale.value, -kOffset * sum};
}

/// Quantizes x into shared memory. Also writes the sum of squares of each row per warp, for the norm. kAtOnce loads are
/// in flight per thread and row.
template <QuantizedFormat kFormat, class T, int kRows, bool kNormed, int kAtOnce>
__device__ void take_x(const Params& p, unsigned char* memory, const SharedLayout<kFormat, kRows>& at) {
  constexpr int kOffset = kFormat == QuantizedFormat::q8 ? 128 : 8;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int hop = static_cast<int>(blockDim.x);
  const int quads = p.blocks * (kQuantizedBlock / 4);
  auto* factors = reinterpret_cast<Factor*>(memory + at.factors);
  float squares[kRows] = {};
#pragma unroll 1
  for (int begin = thread - lane; begin < quads; begin += kAtOnce * hop) {  // the loop bounds are uniform per warp
    float4 v[kAtOnce][kRows];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int column = (begin + n * hop + lane) * 4;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const T* from = static_cast<const T*>(p.x) + static_cast<int64_t>(r) * p.in + column;
        v[n][r] = load_quad(from, column < p.in && r < p.rows);
      }
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int first = begin + n * hop;
      const int column = (first + lane) * 4;
      if (first >= quads) break;
      if constexpr (kNormed) {
        float4 scale{1, 1, 1, 1};
        if (p.scale != nullptr) {
          scale = load_quad(p.scale + column, column < p.in);
          scale = {scale.x + p.offset, scale.y + p.offset, scale.z + p.offset, scale.w + p.offset};
        }
        if (p.added > 0) add_residual<T, kRows>(p, column, column < p.in, v[n]);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          float4& x = v[n][r];
          squares[r] += x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
          x = {x.x * scale.x, x.y * scale.y, x.z * scale.z, x.w * scale.w};
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r >= p.rows) break;
        uint32_t word;
        const Factor factor = quantize_quad<kOffset>(v[n][r], word);
        if (first + lane >= quads) continue;
        *reinterpret_cast<uint32_t*>(memory + at.numbers + r * at.pitch + column) = word;
        if (lane % 8 == 0) factors[(first + lane) / 8 * kRows + r] = factor;
      }
    }
  }
  if constexpr (kNormed) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float sum = warp_sum(squares[r]);
      if (lane == 0) reinterpret_cast<float*>(memory + at.squares)[thread / kWarp * kRows + r] = sum;
    }
  }
}

template <class T, int kRows>
__device__ void finish(const Params& p, const float* sums, const float* squares, int first_group, int groups) {
  const int outputs = groups * kQuantizedRows;
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x); item < outputs * p.rows; item += static_cast<int>(blockDim.x)) {
    const int row = kRows == 1 ? 0 : item / outputs;
    const int n = item - row * outputs;
    const int column = first_group * kQuantizedRows + n;
    if (column >= p.out) continue;
    float factor = 1.0F;
    if (p.normed) {
      float total = 0.0F;
#pragma unroll 4
      for (int w = 0; w < p.parts * p.teams; ++w) total += squares[w * kRows + row];
      factor = rsqrtf(total / static_cast<float>(p.in) + p.eps);
    }
    float found[2] = {};
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      if (t >= p.tiles) break;
      const float* from =
          sums + ((n / kQuantizedRows * p.tiles + t) * kRows + row) * kQuantizedRows + n % kQuantizedRows;
#pragma unroll 4
      for (int part = 0; part < p.parts; ++part) {
        found[t] += from[part * p.most_groups * p.tiles * kRows * kQuantizedRows];
      }
      found[t] *= factor;
      if (p.bias != nullptr) found[t] += p.bias[t * p.out + column];
    }
    const float value = p.tiles == 1 ? activation_value(p.activation, found[0])
                                     : gate_value(p.unit, AnyGate<T>{p.gate}, {found[0], found[1]});
    static_cast<T*>(p.y)[static_cast<int64_t>(row) * p.out + column] = from_float<T>(value);
  }
}

template <QuantizedFormat kFormat, class T, int kRows>
__global__ void __launch_bounds__(kMostWarps* kWarp, kRows == 1 ? 2 : 1)
    weight_stream_kernel(const __grid_constant__ Params p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char memory[];
  const SharedLayout<kFormat, kRows> at(p);
  const int first_group = static_cast<int>(static_cast<int64_t>(p.groups) * blockIdx.x / gridDim.x);
  const int groups = static_cast<int>(static_cast<int64_t>(p.groups) * (blockIdx.x + 1) / gridDim.x) - first_group;
  WarpStream<kFormat, kRows> stream(p, memory, first_group, groups);
  const bool late = kFormat == QuantizedFormat::q8 && kRows == 1 && p.starts_next_late;
  if (!late) trigger_dependents();
  grid_dependency_wait();
  // Three for one row, because a down projection is several times as wide as the residual stream.
  constexpr int kAtOnce = kRows == 1 ? 3 : 1;
  p.normed ? take_x<kFormat, T, kRows, true, 1>(p, memory, at)
           : take_x<kFormat, T, kRows, false, kAtOnce>(p, memory, at);
  if (late) trigger_dependents();
  __syncthreads();
  auto* sums = reinterpret_cast<float*>(memory + at.sums);
  stream.run(memory, at, sums);
  __syncthreads();
  finish<T, kRows>(p, sums, reinterpret_cast<const float*>(memory + at.squares), first_group, groups);
#endif
}

/// Divides the outputs among blocks and warps, and sizes the rings. Only the rings depend on the number of rows, so the
/// result of a row does not depend on the other rows. Returns false if shared memory does not suffice.
template <QuantizedFormat kFormat, int kRows>
bool divide(Params& p, int sm_count) {
  const auto sum_bytes = [&](int parts) {
    return int64_t{parts} * p.most_groups * p.tiles * kMostRows * kQuantizedRows * 4;
  };
  const int fitting = kSumsBytes / static_cast<int>(p.tiles * kMostRows * kQuantizedRows * 4);
  p.grid = std::max(std::min(p.groups, sm_count), (p.groups + fitting - 1) / fitting);
  p.most_groups = (p.groups + p.grid - 1) / p.grid;
  const int units = p.most_groups * p.tiles;
  // Minimum blocks of columns per warp, except for small weights.
  constexpr int kLeastBlocks = Stage<kFormat>::kBlocks * 3 / 4;
  constexpr int kLeastWarps = 8;
  p.parts = 1;
  while (p.parts < kMostWarps && p.blocks / (2 * p.parts) >= (p.parts * units < kLeastWarps ? 2 : kLeastBlocks)) {
    p.parts *= 2;
  }
  while (p.parts > 1 && sum_bytes(p.parts) > kSumsBytes) p.parts /= 2;
  p.teams = std::min(kMostWarps / p.parts, units);
  p.stages = 0;
  const int fixed = SharedLayout<kFormat, kRows>(p).end;
  const int ring = std::min(kRingBytes, kSharedBytes - fixed);
  constexpr int kBlocks = Stage<kFormat>::kBlocks;
  const int chunks = ((p.blocks + p.parts - 1) / p.parts + kBlocks - 1) / kBlocks;
  const int needed = (units + p.teams - 1) / p.teams * chunks;
  p.stages = std::min({ring / (p.parts * p.teams * Stage<kFormat>::kBytes), kMostStages, needed});
  return p.stages >= std::min(2, needed);
}

template <QuantizedFormat kFormat, class T, int kRows>
bool launch(const Device& device, Params p) {
  if (!divide<kFormat, kRows>(p, sm_count(device))) return false;
  const auto kernel = weight_stream_kernel<kFormat, T, kRows>;
  const int shared = SharedLayout<kFormat, kRows>(p).end;
  constexpr const char* kOp = "quantized_linear";
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), kOp);
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100), kOp);
  launch_dependent(kernel, dim3(static_cast<unsigned>(p.grid)), dim3(static_cast<unsigned>(p.parts * p.teams * kWarp)),
                   static_cast<size_t>(shared), device, p);
  check_launch(kOp);
  return true;
}

template <QuantizedFormat kFormat>
bool launch_types(const Device& device, DType type, const Params& p) {
  bool done = false;
  visit_floating("quantized_linear", type, [&](auto tag) {
    using T = DeviceType<typename decltype(tag)::type>;
    done = p.rows == 1 ? launch<kFormat, T, 1>(device, p) : launch<kFormat, T, kMostRows>(device, p);
  });
  return done;
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

bool quantized_weight_stream(const QuantizedStream& args) {
  const QuantizedLinear& product = args.product;
  const QuantizedWeight& weight = product.weight;
  const Device& device = product.x.device();
  constexpr int64_t kMost = 1 << 20;  // columns and groups of 16 outputs; then indices fit 32 bits
  const bool fits = has_dependent_launch(device) && product.x.dim(0) >= 1 && product.x.dim(0) <= kMostRows &&
                    weight.in > 0 && weight.in % 4 == 0 && weight.in <= kMost && weight.groups() <= kMost &&
                    (!args.gated || (!args.options.interleaved && weight.out % (2 * QuantizedWeight::kRows) == 0));
  if (!fits || !is_aligned(product.x.raw()) || !is_aligned(weight.data.raw())) return false;
  const int tiles = args.gated ? 2 : 1;
  const int groups = static_cast<int>(weight.groups()) / tiles;
  Params p{.x = product.x.raw(),
           .weight = weight.data.data<uint8_t>(),
           .bias = device_data<float>(product.bias),
           .y = product.y.raw(),
           .group_bytes = weight.group_bytes(),
           .scale_bytes = static_cast<int>(weight.scale_bytes()),
           .in = static_cast<int>(weight.in),
           .out = static_cast<int>(product.y.dim(1)),
           .rows = static_cast<int>(product.x.dim(0)),
           .blocks = static_cast<int>(weight.blocks()),
           .groups = groups,
           .grid = 0,
           .most_groups = 0,
           .tiles = tiles,
           .second = args.gated ? groups : 0,
           .parts = 0,
           .teams = 0,
           .stages = 0,
           .starts_next_late = starts_next_late(weight),
           .activation = product.activation,
           .gate = args.gate,
           .unit = GateUnit(args.options),
           .normed = false,
           .added = 0,
           .residual = nullptr,
           .h = nullptr,
           .scale = nullptr,
           .offset = 0.0F,
           .eps = 0.0F};
  if (args.norm != nullptr) {
    if (args.norm->kind != RowNorm::Kind::rms) return false;
    p.normed = true;
    p.residual = args.residual.defined() ? args.residual.raw() : nullptr;
    p.added = args.residual.defined() ? static_cast<int>(args.residual.dim(0)) : 0;
    p.h = args.h.defined() ? args.h.raw() : nullptr;
    p.scale = device_data<float>(args.norm->weight);
    p.offset = static_cast<float>(args.norm->options.weight_offset);
    p.eps = static_cast<float>(args.norm->options.eps);
    if (!is_aligned(p.residual) || !is_aligned(p.h) || !is_aligned(p.scale)) return false;
  }
  return weight.format == QuantizedFormat::q8 ? launch_types<QuantizedFormat::q8>(device, product.x.dtype(), p)
                                              : launch_types<QuantizedFormat::q4>(device, product.x.dtype(), p);
}

}  // namespace lamina::ops::cuda
