// Decoding: at most eight rows of x, so that the time is that of reading the weight once, or of a launch where it is
// small. A warp takes eight outputs (for a gated unit eight gates and their eight ups), and each lane 16 bytes of one
// weight row at a time: four lanes side by side read a step of 64 bytes. Eight such loads of a lane are under way
// before the first is used; x comes straight from the caches, its whole is read by every block. Where outputs are
// few, up to eight warps of a block share the steps of the same outputs and join their sums in shared memory, so that
// small products, too, reach many multiprocessors and end after one round of loads.
//
// bf16 and f16 are multiplied by the matrix units with x as the left side, rows 8 to 15 of it zeros: which of a
// step's columns a lane's elements stand for is the same on both sides, so 16 bytes as they lie are two operands.
// f32 rows of x (with weights of f32 or bf16) are multiplied by ordinary instructions, four to a block; the blocks
// of the other four find the weight in the second-level cache. An output's sum does not depend on the number of rows.
//
// The kernel is launched while its predecessor runs and fetches the first part of its weights into the second-level
// cache before it waits for it.
#include "lamina/ops/linear/linear_few_rows_cuda.h"

#include "lamina/ops/activation/gated_activation.cuh"
#include "lamina/ops/linear/gated_linear.h"
#include "lamina/tensor/cuda/mma.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: what kernels share

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kLoads = 8;     // of a lane under way
constexpr int kOutputs = 8;   // of a warp
constexpr int kStep = 64;     // bytes of a weight row that four lanes read at once
constexpr int kResident = 3;  // blocks of a multiprocessor
constexpr int kSums = kOutputs * static_cast<int>(kFewRows);

struct FewRows {
  const char* x;       ///< [rows, in]
  const char* weight;  ///< [.., in]
  const float* bias;   ///< or null
  void* y;             ///< [rows, out]
  void* z;             ///< [rows, out] or null
  int64_t row_bytes;   ///< from one row of the weight to the next
  int bytes;           ///< of a row of the weight
  int rows, out;
  int next;      ///< rows of the weight from one output to the next
  int second;    ///< rows of the weight from an output's gate to its up
  int halvings;  ///< 2^halvings warps share the steps of the same outputs
  Activation activation;
  Gate gate;
  GateUnit unit;

  __host__ __device__ int split() const { return 1 << halvings; }
  __device__ int groups() const { return kWarps >> halvings; }  ///< of outputs, of a block
};

/// 16 bytes, zeros where there are none: one predicated instruction, so that no branch stands between two loads. What
/// is read `once` goes past the first-level cache, which is x's.
#define LAMINA_LOAD_WORDS(instruction)                                                              \
  asm volatile(                                                                                     \
      "{ .reg .pred there; setp.ne.b32 there, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; " \
      "mov.b32 %3, 0; @there " instruction ".v4.u32 {%0, %1, %2, %3}, [%4]; }"                      \
      : "=&r"(words.x), "=&r"(words.y), "=&r"(words.z), "=&r"(words.w)                              \
      : "l"(__cvta_generic_to_global(from)), "r"(static_cast<int>(there)))
__device__ inline uint4 load_words(const char* from, bool there) {
  uint4 words;
  LAMINA_LOAD_WORDS("ld.global");
  return words;
}
__device__ inline uint4 load_words_once(const char* from, bool there) {
  uint4 words;
  LAMINA_LOAD_WORDS("ld.global.cg");
  return words;
}
#undef LAMINA_LOAD_WORDS

/// Rows of x that a block multiplies.
struct Part {
  const char* data;
  int bytes;  ///< of a row, were it of the weight's type
  int rows;
};

/// Sums of eight rows of x, of the weight's type, with eight rows of the weight.
template <class W, class X, int kRows>
struct Sums {
  static_assert(std::is_same_v<W, X> && kRows == kFewRows);
  static constexpr bool kHeld = true;  ///< pieces of x are loaded together with those of the weight
  static constexpr int kBlocks = kResident;
  struct Piece {
    uint4 words;
  };
  float even[4] = {};
  float odd[4] = {};

  __device__ static Piece load(const Part& x, int lane, int at) {
    const int row = lane / 4;
    return {load_words(x.data + static_cast<uint32_t>(row * x.bytes + at), row < x.rows && at < x.bytes)};
  }
  __device__ void add(const uint4& w, const Piece& x) {
    const uint32_t first[4] = {x.words.x, 0, x.words.y, 0};
    const uint32_t second[4] = {x.words.z, 0, x.words.w, 0};
    multiply_add<W>(even, first, w.x, w.y);
    multiply_add<W>(odd, second, w.z, w.w);
  }
  /// to [rows of x][outputs].
  __device__ void put(float* to, int lane) const {
    reinterpret_cast<float2*>(to)[lane] = {even[0] + odd[0], even[1] + odd[1]};
  }
};

/// Sums of kRows rows of x in f32 with one row of the weight, over a quarter of the columns.
template <class W, int kRows>
struct Sums<W, float, kRows> {
  static constexpr int kSize = Pack<W>::kSize;
  static constexpr int kScale = static_cast<int>(sizeof(float) / sizeof(W));  ///< bytes of x for one of the weight
  static constexpr bool kHeld = kRows * kSize <= 4;
  static constexpr int kBlocks = kHeld ? kResident : 2;
  struct Piece {
    uint4 words[kRows][kSize / 4];  ///< floats
  };
  float sum[kRows] = {};

  __device__ static Piece load(const Part& x, int /*lane*/, int at) {
    Piece piece;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const bool there = r < x.rows && at < x.bytes;
      const char* from = x.data + static_cast<uint32_t>((r * x.bytes + at) * kScale);
#pragma unroll
      for (int n = 0; n < kSize / 4; ++n) piece.words[r][n] = load_words(from + n * 16, there);
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

/// Result `item` of a block: row · outputs + output of one of its groups of outputs.
struct Place {
  int group;  ///< of the block
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

/// kTiles = 2: gate and up.
template <class W, class X, int kRows, int kTiles>
__global__ void __launch_bounds__(kThreads, Sums<W, X, kRows>::kBlocks)
    few_rows_kernel(const __grid_constant__ FewRows p) {
  using S = Sums<W, X, kRows>;
  constexpr int kAhead = kLoads / kTiles;
  constexpr int kItems = kWarps * kSums / kThreads;  // results of a thread, at most
  __shared__ alignas(16) float shares[kWarps][kTiles][kSums];
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp;
  const int lane = thread % kWarp;
  const int group = static_cast<int>(blockIdx.x) * p.groups() + (warp >> p.halvings);
  const int output = group * kOutputs + lane / 4;
  const int limit = output < p.out ? p.bytes : 0;
  const char* weight[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    weight[t] = p.weight + (static_cast<int64_t>(output) * p.next + static_cast<int64_t>(t) * p.second) * p.row_bytes;
  }
  const int first_row = static_cast<int>(blockIdx.y) * kRows;
  const Part x{p.x + static_cast<int64_t>(first_row) * p.bytes * static_cast<int>(sizeof(X) / sizeof(W)), p.bytes,
               min(kRows, p.rows - first_row)};
  const int begin = (warp & (p.split() - 1)) * kStep;
  const int hop = p.split() * kStep;
  const int mine = lane % 4 * 16;
#pragma unroll
  for (int a = 0; a < kAhead; ++a) {
    const int at = begin + a * hop + mine;
    if (lane % 2 != 0 || at >= limit) continue;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) fetch_ahead(weight[t] + at);
  }
  wait_for_previous();

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
  for (int first = begin; first < p.bytes; first += kAhead * hop) {  // the same for all lanes
    uint4 w[kAhead][kTiles];
    typename S::Piece of_x[S::kHeld ? kAhead : 1];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int at = first + a * hop + mine;
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        w[a][t] = load_words_once(weight[t] + at, at < limit);
      }
      if constexpr (S::kHeld) of_x[a] = S::load(x, lane, at);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if constexpr (!S::kHeld) of_x[0] = S::load(x, lane, first + a * hop + mine);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) sums[t].add(w[a][t], of_x[S::kHeld ? a : 0]);
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
        if (part < p.split()) sum += shares[(place.group << p.halvings) + part][t][item % kSums];
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

/// As many warps for the same outputs as leave all blocks a place at once.
int halvings_for(const FewRows& p, int64_t groups, int processors) {
  const int64_t places = int64_t{kWarps} * kResident * processors;  // of warps
  int halvings = 0;
  while ((1 << halvings) < kWarps && kStep << halvings < p.bytes && groups << (halvings + 1) <= places) ++halvings;
  return halvings;
}

template <class W, class X, int kRows, int kTiles>
void launch(const Device& device, FewRows& p) {
  const int64_t groups = (int64_t{p.out} + kOutputs - 1) / kOutputs;
  p.halvings = halvings_for(p, groups, processors(device));
  const dim3 grid(static_cast<unsigned>(blocks_for(groups * p.split(), kWarps)),
                  static_cast<unsigned>((p.rows + kRows - 1) / kRows));
  launch_dependent(few_rows_kernel<W, X, kRows, kTiles>, grid, dim3(kThreads), 0, device, p);
  check_launch("linear");
}

template <int kTiles>
void launch_types(const Device& device, DType weight, DType x, FewRows& p) {
  if (x == DType::bf16) return launch<__nv_bfloat16, __nv_bfloat16, kFewRows, kTiles>(device, p);
  if (x == DType::f16) return launch<__half, __half, kFewRows, kTiles>(device, p);
  if (weight == DType::f32) {
    return p.rows == 1 ? launch<float, float, 1, kTiles>(device, p) : launch<float, float, 4, kTiles>(device, p);
  }
  return p.rows == 1 ? launch<__nv_bfloat16, float, 1, kTiles>(device, p)
                     : launch<__nv_bfloat16, float, 4, kTiles>(device, p);
}

/// What the arguments have in common; `out` is 0 where the kernel does not take them.
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
            .halvings = 0,
            .activation = Activation::none,
            .gate = Gate::liglu,
            .unit = GateUnit(options)};
  const bool types = x.dtype() == DType::f32 ? weight.dtype() == DType::f32 || weight.dtype() == DType::bf16
                                             : weight.dtype() == x.dtype() && x.dtype() != DType::f64;
  const auto size = static_cast<int64_t>(size_of(weight.dtype()));
  const int64_t bytes = weight.dim(1) * size;
  const auto whole = [](int64_t count) { return count % 16 == 0; };
  const auto aligned = [&](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; };
  constexpr int64_t kMost = int64_t{1} << 26;  // bytes of x stay within 32 bits
  if (!types || x.dim(0) > kFewRows || weight.strides()[1] != 1 || bytes == 0 || bytes > kMost ||
      weight.dim(0) > kMost || !whole(bytes) || !whole(weight.strides()[0] * size) || !aligned(p.x) ||
      !aligned(p.weight)) {
    return p;
  }
  p.bias = device_data<float>(bias);
  p.row_bytes = weight.strides()[0] * size;
  p.bytes = static_cast<int>(bytes);
  p.rows = static_cast<int>(x.dim(0));
  p.out = static_cast<int>(y.dim(1));
  return p;
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

void gated_linear_forward(const GatedLinearForward& args) {
  if (args.y.numel() == 0) return;
  FewRows p = few_rows_of(args.x, args.weight, args.bias, args.y, args.options);
  if (p.out == 0) {
    const Tensor joined = Tensor::empty({args.x.dim(0), args.weight.dim(0)}, args.x.dtype(), args.x.device());
    linear_forward({args.x, args.weight, args.bias, Activation::none, joined, Tensor()});
    return gated_activation_forward(joined, args.gate, args.options, args.y);
  }
  p.next = args.options.interleaved ? 2 : 1;
  p.second = args.options.interleaved ? 1 : p.out;
  p.gate = args.gate;
  launch_types<2>(args.x.device(), args.weight.dtype(), args.x.dtype(), p);
}

}  // namespace lamina::ops::cuda
