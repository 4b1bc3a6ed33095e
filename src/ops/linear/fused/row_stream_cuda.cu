// Products for decoding, with at most eight f32 rows of x, limited by reading the weight once. All SMs have equal
// shares of the outputs, whose weight rows are contiguous. The warps of a block split the columns: a lane reads 16
// bytes of every row, always at the same columns, so its part of x stays in registers. A few weight rows are multiplied
// at a time while others are in flight. The lanes of a warp are reduced by butterfly exchange; the partial sums of the
// warps are added in order at the end. The order of additions depends only on the width, not on the number of rows.
// Narrow rows are divided among several teams of warps.
//
// If there is a norm before the product, every block computes it in registers. A layer norm needs block-wide sums for
// mean and variance. The factor of an RMS norm is the same for all columns and is applied to the results, so the
// product need not wait for it. The first block writes x + residual.
//
// The kernel uses programmatic dependent launch: it prefetches its first weights and those of the norm into the L2
// cache while the previous kernel runs. After the wait it loads x first, then the weights.
//
// For one row of x the same kernel serves products with and without a norm, so its instructions stay cached from one
// product to the next. It leaves registers and shared memory for the kernel that computes attention with its output
// projection (attention/decode/output_step.cuh): each of the two can become resident before the other has finished.
// Wide weight rows are read with the L2 evict-first policy: one token reads more weights than L2 holds, and they would
// evict data that is needed again soon, including kernel code.
#include "lamina/ops/linear/fused/row_stream.cuh"

#include <algorithm>

namespace lamina::ops::cuda {
namespace {

using namespace row_stream;  // NOLINT: kernel helpers

template <class W, int kParts, int kRows, bool kNormed>
__global__ void __launch_bounds__(Shape<kParts, kRows>::kThreads, Shape<kParts, kRows>::kBlocksPerSm)
    streamed_kernel(const __grid_constant__ Streamed p) {
  using S = Shape<kParts, kRows>;
  using X = LaneOfX<W, kRows>;
  constexpr int kTogether = S::kTogether;
  constexpr int kValues = kTogether * kRows;
  constexpr int kLanes = kWarp / kValues;  // lanes that end up with the same sum
  constexpr int kSize = Pack<W>::kSize;
  extern __shared__ float sums[];  // [parts][weight rows][rows of x]
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
  const int rows = outputs << p.tile_bits;  // number of weight rows
  const bool normed = kNormed && p.norm.there;
  const uint64_t policy = p.bytes >= kWideBytes ? evict_first_policy() : evict_normal_policy();
  if (blockIdx.y == 0 && thread < min(p.ahead, rows)) prefetch_l2_bulk(weight + p.offset(thread), p.bytes);
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
  for (int row = team * kTogether; row < rows; row += S::kDepth * hop) {  // the loop bounds are uniform over the warp
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
    if (normed && !p.norm.is_layer_norm) {
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
  const int places = S::kBlocksPerSm * sm_count(device) / turns;
  const int least = std::max(p.teams * S::kTogether >> p.tile_bits, 1);  // least outputs that keep all warps busy
  const int most = kSumsBytes / per_output;
  const auto shares = [&](int each) { return (p.out + each - 1) / each; };
  const int blocks = std::max(std::min(places, shares(least)), shares(most));
  const int outputs = shares(blocks);
  p.most_rows = outputs << p.tile_bits;
  p.ahead = kPrefetchBytes / S::kBlocksPerSm / p.bytes;
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

/// True if every block normalizes x itself.
bool norms(const Streamed& p) {
  if (p.norm.added > (p.rows == 1 ? kMostAdded : 1)) return false;
  if (p.rows == 1) return p.parts <= kMostNormedParts;
  return p.parts <= kNormedParts && p.rows * p.in * static_cast<int>(sizeof(float)) <= kNormedBytes;
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

bool linear_row_stream(const RowStreamLinear& args) {
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
              .is_layer_norm = given.norm.kind == RowNorm::Kind::layer,
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
