// Decoding with at most eight f32 rows of x: bound by reading the weight once. All SMs have equal shares of the
// outputs, whose weight rows are contiguous. The warps of a block split the columns: a lane has 16 bytes of every row,
// always at the same columns, so its part of x stays in registers. A few weight rows are multiplied at a time while
// others are in flight. A warp reduces its lanes by exchanging halves, and the partial sums of the warps are added in
// order at the end. The order depends only on the width, not on the number of rows. Narrow rows are processed by
// several teams of warps.
//
// A norm before the product is computed by every block in registers. A layer norm needs block-wide sums for mean and
// variance. An RMS norm's factor is the same for all columns and is applied to the results, so the product need not
// wait for it. The first block writes x + residual.
//
// The kernel uses programmatic dependent launch: it prefetches its first weights and the norm's into the L2 cache while
// the previous kernel runs. After the wait it loads x first, then the weights.
//
// For one row of x there is a single kernel, with or without a norm, so its instructions stay cached from one product
// to the next. It leaves registers and shared memory for attention with its output projection
// (attention/decode/output_step.cuh): each of the two kernels can become resident before the other has finished.
// Weights of wide rows are read with the L2 evict-first policy: one token reads more weights than L2 holds, and they
// would evict data that is needed again soon, including kernel code.
#include <algorithm>

#include "lamina/ops/activation/gated_activation.cuh"
#include "lamina/ops/linear/fused/few_rows_cuda.h"
#include "lamina/ops/linear/fused/row_stream_cuda.h"
#include "lamina/tensor/cuda/l2_policy_loads.cuh"
#include "lamina/tensor/cuda/prefetch.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: what kernels share

constexpr int kPiece = kWarp * 16;     // bytes of a row that a warp reads at once
constexpr int kMostParts = 24;         // most warps per row
constexpr int kMostNormedParts = 16;   // most warps per row with a norm
constexpr int kNormedParts = 8;        // most warps per row with a norm and several rows of x
constexpr int kWarps = 16;             // per block for one row of x, if `parts` allows: leaves room for attention
constexpr int kNormedBytes = 4 << 10;  // of several rows of x: beyond, a separate norm kernel is faster
constexpr int kAddedAtOnce = 4;        // parts of a residual loaded together, for one row of x
constexpr int kMostAdded = 8;
constexpr int kAhead = 32 << 10;      // bytes of the weight prefetched per SM before the wait
constexpr int kSumsBytes = 40 << 10;  // per block, at most
constexpr int kWideBytes = 2 << 10;   // weight rows at least this wide use the evict-first policy
constexpr int kSharedPercent = 58;    // shared memory carve-out: 132 KB, for attention on the same SM

/// Tuning for rows of up to kParts pieces and `kRows` rows of x: weight rows that a warp multiplies together
/// (kTogether), and how many times as many are in flight in registers (kDepth), enough to saturate memory bandwidth.
template <int kParts, int kRows>
struct Shape {
  static constexpr int kThreads = kParts * kWarp;
  static constexpr int kResident = kParts <= 8 ? 2 : 1;  // blocks per SM
  static constexpr int kTogether = 4;
  static constexpr int kDepth = kParts > 16 && kRows > 1 ? 1 : 2;
  static constexpr int kBefore = kRows == 1 ? 1 : kDepth;  // of those, loaded before x arrives: registers are scarce
};
/// Rows of x per block, if there are several.
template <int kParts>
constexpr int kSeveral = kParts > 16 ? 2 : 4;

struct StreamedNorm {
  bool there;
  bool centred;           ///< a layer norm
  const float* residual;  ///< [added, rows, in]
  int added;              ///< parts of the residual; 0 without one
  float* h;               ///< [rows, in], if there is a residual
  const float* scale;     ///< [in] or null
  const float* bias;      ///< [in] or null
  float offset;           ///< added to the scale
  float eps;
  float share;  ///< 1 / number of columns
};

struct Streamed {
  const float* x;      ///< [rows, in]
  const char* weight;  ///< [.., in]
  const float* bias;   ///< or null
  float* y;            ///< [rows, out]
  float* z;            ///< [rows, out] or null
  int row_bytes;       ///< bytes between consecutive weight rows
  int bytes;           ///< per weight row
  int in, rows, out;
  int tile_bits;  ///< 1: gate and up
  int next;       ///< bytes between the rows of consecutive outputs
  int second;     ///< bytes between gate and up of an output
  int parts;      ///< warps per row
  int teams;      ///< groups of `parts` warps
  int most_rows;  ///< most weight rows per block
  int ahead;      ///< weight rows prefetched before the wait
  Activation activation;
  Gate gate;
  GateUnit unit;
  StreamedNorm norm;

  __device__ int first_output(unsigned block) const {
    return static_cast<int>(static_cast<int64_t>(out) * block / gridDim.x);
  }
  __device__ int bias_at(int output, int tile) const {
    return output * (next / row_bytes) + tile * (second / row_bytes);
  }
  /// Byte offset of weight row `row`, counted from the block's first output.
  __device__ int offset(int row) const { return (row >> tile_bits) * next + (row & tile_bits) * second; }
};

/// Reduces kCount values over all lanes: sum n ends up in the lanes whose leading bits are n. Butterfly exchange: lanes
/// that differ in a bit exchange the half that belongs to the other.
template <int kCount, int kStep = kWarp / 2>
__device__ inline float spread_sums(const float (&values)[kCount], int lane) {
  if constexpr (kCount == 1) {
    float sum = values[0];
#pragma unroll
    for (int step = kStep; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    return sum;
  } else {
    const bool upper = (lane & kStep) != 0;
    float half[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float given = upper ? values[i] : values[i + kCount / 2];
      const float kept = upper ? values[i + kCount / 2] : values[i];
      half[i] = kept + __shfl_xor_sync(kAllLanes, given, kStep);
    }
    return spread_sums<kCount / 2, kStep / 2>(half, lane);
  }
}

/// A lane's columns of the block's rows of x. kAdded parts of a residual are loaded together.
template <class W, int kRows>
struct LaneOfX {
  static constexpr int kAdded = kRows == 1 ? kAddedAtOnce : 1;
  static constexpr int kSize = Pack<W>::kSize;
  float values[kRows][kSize];
  float others[kAdded][kRows][kSize];  ///< of the residual
  float scale[kSize];
  float bias[kSize];

  __device__ static void take(const float* from, bool there, float (&to)[kSize]) {
#pragma unroll
    for (int i = 0; i < kSize; i += 4) {
      const uint4 four = load_words(from + i, there);
      to[i] = __uint_as_float(four.x), to[i + 1] = __uint_as_float(four.y);
      to[i + 2] = __uint_as_float(four.z), to[i + 3] = __uint_as_float(four.w);
    }
  }
  __device__ static const float* part_of(const Streamed& p, int part) {
    return p.norm.residual + static_cast<int64_t>(part) * p.rows * p.in;
  }
  /// Rows from `first` on, `count` of which exist; count is 0 for a lane without columns.
  __device__ LaneOfX(const Streamed& p, bool normed, int column, int first, int count) {
    const int64_t at = static_cast<int64_t>(first) * p.in + column;
#pragma unroll
    for (int r = 0; r < kRows; ++r) take(p.x + at + r * p.in, r < count, values[r]);
    if (!normed) return;
#pragma unroll
    for (int a = 0; a < kAdded; ++a) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) take(part_of(p, a) + at + r * p.in, r < count && a < p.norm.added, others[a][r]);
    }
    if (p.norm.scale != nullptr) take(p.norm.scale + column, count > 0, scale);
  }
  /// Called after the residual is added, since registers are scarce before.
  __device__ void take_bias(const Streamed& p, int column, bool there) {
    if (p.norm.bias != nullptr) take(p.norm.bias + column, there, bias);
  }
  __device__ static void fetch_parameters(const Streamed& p, int column) {
#pragma unroll
    for (int i = 0; i < kSize; i += 8) {  // 32 bytes
      if (p.norm.scale != nullptr) prefetch_l2(p.norm.scale + column + i);
      if (p.norm.bias != nullptr) prefetch_l2(p.norm.bias + column + i);
    }
  }
  __device__ void add_residual(const Streamed& p, int column, int first, int count, bool writes) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t at = static_cast<int64_t>(first + r) * p.in + column;
#pragma unroll
      for (int a = 0; a < kAdded; ++a) {
#pragma unroll
        for (int i = 0; i < kSize; ++i) values[r][i] += others[a][r][i];
      }
#pragma unroll 1
      for (int a = kAdded; a < p.norm.added; ++a) {
        take(part_of(p, a) + at, r < count, others[0][r]);
#pragma unroll
        for (int i = 0; i < kSize; ++i) values[r][i] += others[0][r][i];
      }
      if (!writes || r >= count) continue;
      float* to = p.norm.h + at;
#pragma unroll
      for (int i = 0; i < kSize; i += 4) {
        *reinterpret_cast<float4*>(to + i) =
            make_float4(values[r][i], values[r][i + 1], values[r][i + 2], values[r][i + 3]);
      }
    }
  }
  /// All threads must call it. A layer norm takes two block-wide sums. An RMS norm's factor is applied to the results:
  /// the sums of squares per part and row are left in `sums` (shared memory) for the epilogue.
  __device__ void normalize(const Streamed& p, int part, int team, int lane, int count, float (*sums)[kRows]) {
    const bool writes = lane == 0 && team == 0;
    const float width = static_cast<float>(p.in);
    float by[kRows];
    if (p.norm.centred) {
#pragma unroll 1
      for (int turn = 0; turn < 2; ++turn) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          float sum = 0.0F;
#pragma unroll
          for (int i = 0; i < kSize; ++i) sum += turn == 0 ? values[r][i] : values[r][i] * values[r][i];
          sum = warp_sum(sum);
          if (writes) sums[part][r] = sum;
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float mean = warp_sum(lane < p.parts ? sums[lane][r] : 0.0F) / width;
          by[r] = 1.0F / sqrtf(mean + p.norm.eps);
#pragma unroll
          for (int i = 0; i < kSize; ++i) values[r][i] -= turn == 0 && r < count ? mean : 0.0F;
        }
        __syncthreads();
      }
    } else {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float sum = 0.0F;
#pragma unroll
        for (int i = 0; i < kSize; ++i) sum = fmaf(values[r][i], values[r][i], sum);
        sum = warp_sum(sum);
        if (writes) sums[part][r] = sum;
        by[r] = 1.0F;
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        values[r][i] *= by[r];
        if (p.norm.scale != nullptr) values[r][i] *= scale[i] + p.norm.offset;
        if (p.norm.bias != nullptr) values[r][i] += bias[i];
      }
    }
  }
};

template <class W, int kParts, int kRows, bool kNormed>
__global__ void __launch_bounds__(Shape<kParts, kRows>::kThreads, Shape<kParts, kRows>::kResident)
    streamed_kernel(const __grid_constant__ Streamed p) {
  using S = Shape<kParts, kRows>;
  using X = LaneOfX<W, kRows>;
  constexpr int kTogether = S::kTogether;
  constexpr int kValues = kTogether * kRows;
  constexpr int kLanes = kWarp / kValues;  // lanes that hold the same sum
  constexpr int kSize = Pack<W>::kSize;
  extern __shared__ float sums[];  // [parts][rows of the weight][rows of x]
  __shared__ float norm_sums[kNormed ? kMostNormedParts : 1][kRows];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int part = thread / kWarp % p.parts;
  const int team = thread / kWarp / p.parts;
  const int first = p.first_output(blockIdx.x);
  const int outputs = p.first_output(blockIdx.x + 1) - first;
  const int first_row = static_cast<int>(blockIdx.y) * kRows;
  const char* weight = p.weight + static_cast<int64_t>(first) * p.next;
  const int mine = part * kPiece + lane * 16;
  const int column = mine / static_cast<int>(sizeof(W));
  const bool there = mine < p.bytes;
  const int count = min(kRows, p.rows - first_row);
  const int rows = outputs << p.tile_bits;  // of the weight
  const bool normed = kNormed && p.norm.there;
  const uint64_t policy = p.bytes >= kWideBytes ? evict_first_policy() : evict_normal_policy();
  if (blockIdx.y == 0 && thread < min(p.ahead, rows)) fetch_stretch_ahead(weight + p.offset(thread), p.bytes);
  trigger_dependents();
  if (normed && there) X::fetch_parameters(p, column);
  grid_dependency_wait();
  X x(p, normed, column, first_row, there ? count : 0);
  uint4 w[S::kDepth][kTogether];
  const char* from = weight + p.offset(team * kTogether) + mine;
  int left = there ? rows - team * kTogether : 0;
  const auto load = [&](int d) {
#pragma unroll
    for (int b = 0; b < kTogether; ++b) w[d][b] = load_evict_first(from + p.offset(b), b < left, policy);
    from += p.offset(p.teams * kTogether);
    left -= p.teams * kTogether;
  };
#pragma unroll
  for (int d = 0; d < S::kBefore; ++d) load(d);
  if (normed && p.norm.added > 0) {
    x.add_residual(p, column, first_row, there ? count : 0, blockIdx.x == 0 && team == 0);
  }
  if (normed) x.take_bias(p, column, there && count > 0);
#pragma unroll
  for (int d = S::kBefore; d < S::kDepth; ++d) load(d);
  if (normed) x.normalize(p, part, team, lane, there ? count : 0, norm_sums);

  float* own_sums = sums + part * p.most_rows * kRows;
  const int hop = p.teams * kTogether;
  for (int row = team * kTogether; row < rows; row += S::kDepth * hop) {  // uniform loop bounds
#pragma unroll
    for (int d = 0; d < S::kDepth; ++d) {
      float found[kValues] = {};
#pragma unroll
      for (int b = 0; b < kTogether; ++b) {
        const Pack<W> pack = *reinterpret_cast<const Pack<W>*>(&w[d][b]);
#pragma unroll
        for (int c = 0; c < kSize; ++c) {
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            found[b * kRows + r] = fmaf(x.values[r][c], to_float(pack.values[c]), found[b * kRows + r]);
          }
        }
      }
      load(d);
      const float sum = spread_sums(found, lane);
      const int index = (row + d * hop) * kRows + lane / kLanes;
      if (lane % kLanes == 0 && index < rows * kRows) own_sums[index] = sum;
    }
  }
  __syncthreads();
  for (int item = thread; item < outputs * count; item += static_cast<int>(blockDim.x)) {
    const int r = kRows == 1 ? 0 : item / outputs;
    const int output = item - r * outputs;
    float factor = 1.0F;
    if (normed && !p.norm.centred) {
      float squares = 0.0F;
#pragma unroll 4
      for (int q = 0; q < p.parts; ++q) squares += norm_sums[q][r];
      factor = rsqrtf(fmaf(squares, p.norm.share, p.norm.eps));
    }
    float total[2] = {};
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      if (t > p.tile_bits) break;
      const float* of = sums + ((output << p.tile_bits) + t) * kRows + r;
#pragma unroll 4
      for (int q = 0; q < p.parts; ++q) total[t] += of[q * p.most_rows * kRows];
      total[t] *= factor;
      if (p.bias != nullptr) total[t] += p.bias[p.bias_at(first + output, t)];
    }
    const int64_t at = static_cast<int64_t>(first_row + r) * p.out + first + output;
    const float result = p.tile_bits == 0 ? activation_value(p.activation, total[0])
                                          : gate_value(p.unit, AnyGate<float>{p.gate}, {total[0], total[1]});
    p.y[at] = result;
    if (p.z != nullptr) p.z[at] = total[0];
  }
}

template <class W, int kParts, int kRows, bool kNormed>
void launch(const Device& device, Streamed& p) {
  using S = Shape<kParts, kRows>;
  p.teams = std::max((kRows == 1 ? kWarps : kParts) / p.parts, 1);
  const int per_output = p.parts * kRows * static_cast<int>(sizeof(float)) << p.tile_bits;
  const int turns = (p.rows + kRows - 1) / kRows;
  const int places = S::kResident * processors(device) / turns;
  const int least = std::max(p.teams * S::kTogether >> p.tile_bits, 1);  // outputs that keep all warps busy
  const int most = kSumsBytes / per_output;
  const auto shares = [&](int each) { return (p.out + each - 1) / each; };
  const int blocks = std::max(std::min(places, shares(least)), shares(most));
  const int outputs = shares(blocks);
  p.most_rows = outputs << p.tile_bits;
  p.ahead = kAhead / S::kResident / p.bytes;
  const auto kernel = streamed_kernel<W, kParts, kRows, kNormed>;
  const char* op = p.norm.there ? "norm_linear" : "linear";
  if (kRows == 1) {
    LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, kSharedPercent), op);
  }
  launch_dependent(kernel, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(turns)),
                   dim3(static_cast<unsigned>(p.parts * p.teams * kWarp)), static_cast<size_t>(outputs * per_output),
                   device, p);
  check_launch(op);
}

template <class W, int kParts>
void launch_several(const Device& device, Streamed& p) {
  constexpr int kMany = kSeveral<kParts>;
  if constexpr (kParts <= kNormedParts) {
    if (p.norm.there) return launch<W, kParts, kMany, true>(device, p);
  }
  launch<W, kParts, kMany, false>(device, p);
}

template <class W>
void launch_parts(const Device& device, Streamed& p) {
  if (p.rows == 1) return launch<W, kMostParts, 1, true>(device, p);
  if (p.parts <= 8) return launch_several<W, 8>(device, p);
  p.parts <= 16 ? launch_several<W, 16>(device, p) : launch_several<W, kMostParts>(device, p);
}

/// Whether every block normalises x itself.
bool norms(const Streamed& p) {
  if (p.norm.added > (p.rows == 1 ? kMostAdded : 1)) return false;
  if (p.rows == 1) return p.parts <= kMostNormedParts;
  return p.parts <= kNormedParts && p.rows * p.in * static_cast<int>(sizeof(float)) <= kNormedBytes;
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

bool linear_streamed(const StreamedLinear& args) {
  const NormLinearForward& given = args.product;
  const Tensor& weight = given.weight;
  const Device& device = given.x.device();
  const bool types = given.x.dtype() == DType::f32 && (weight.dtype() == DType::f32 || weight.dtype() == DType::bf16);
  const auto size = static_cast<int64_t>(size_of(weight.dtype()));
  const int64_t bytes = weight.dim(1) * size;
  const int64_t row_bytes = weight.strides()[0] * size;
  constexpr int64_t kMost = int64_t{1} << 30;  // bytes; offsets fit 32 bits
  if (!types || !has_dependent_launch(device) || given.x.dim(0) > kFewRows || weight.strides()[1] != 1 || bytes == 0 ||
      bytes % 16 != 0 || bytes > kMostParts * kPiece || weight.dim(0) * row_bytes > kMost || row_bytes % 16 != 0 ||
      !is_aligned(given.x.raw()) || !is_aligned(weight.raw())) {
    return false;
  }
  const bool turns = given.gated && given.options.interleaved;
  Streamed p{.x = given.x.data<float>(),
             .weight = static_cast<const char*>(weight.raw()),
             .bias = device_data<float>(given.bias),
             .y = given.y.data<float>(),
             .z = device_data<float>(args.z),
             .row_bytes = static_cast<int>(row_bytes),
             .bytes = static_cast<int>(bytes),
             .in = static_cast<int>(weight.dim(1)),
             .rows = static_cast<int>(given.x.dim(0)),
             .out = static_cast<int>(given.y.dim(1)),
             .tile_bits = given.gated ? 1 : 0,
             .next = static_cast<int>(row_bytes) * (turns ? 2 : 1),
             .second = static_cast<int>(row_bytes * (turns ? 1 : given.y.dim(1))),
             .parts = static_cast<int>((bytes + kPiece - 1) / kPiece),
             .teams = 0,
             .most_rows = 0,
             .ahead = 0,
             .activation = given.activation,
             .gate = given.gate,
             .unit = GateUnit(given.options),
             .norm = {}};
  if (args.normed) {
    p.norm = {.there = true,
              .centred = given.norm.kind == RowNorm::Kind::layer,
              .residual = device_data<float>(given.residual),
              .added = given.residual.defined() ? static_cast<int>(given.residual.dim(0)) : 0,
              .h = device_data<float>(given.h),
              .scale = device_data<float>(given.norm.weight),
              .bias = device_data<float>(given.norm.bias),
              .offset = static_cast<float>(given.norm.options.weight_offset),
              .eps = static_cast<float>(given.norm.options.eps),
              .share = 1.0F / static_cast<float>(p.in)};
    if (!is_aligned(p.norm.residual) || !is_aligned(p.norm.h) || !is_aligned(p.norm.scale) ||
        !is_aligned(p.norm.bias)) {
      return false;
    }
  }
  if (p.norm.there && !norms(p)) return false;
  weight.dtype() == DType::f32 ? launch_parts<float>(device, p) : launch_parts<__nv_bfloat16>(device, p);
  return true;
}

}  // namespace lamina::ops::cuda
