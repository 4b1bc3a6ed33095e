// Products for decoding, with at most eight rows of x and a quantized weight. They are limited by reading the weight
// once or, if it is small, by launch latency.
//
// A block takes one group of 16 weight rows (for gated units, one of gates and one of ups, with half of its warps
// each). A warp processes up to eight blocks of 32 columns at a time (4 KiB contiguous in q8), all loaded before the
// first is used. It takes fewer if there would not be enough warps to fill the GPU. The partial sums of the warps are
// added in order in shared memory.
//
// A warp quantizes its part of x itself, with eight columns per lane. Four lanes and two shuffles find the scale of a
// block of 32, so no warp waits for another. A single row is quantized while the weights are loading. Several rows are
// quantized before that, four at a time, because the weights need the same registers; meanwhile the weights are
// prefetched into the L2 cache.
//
// The kernel uses programmatic dependent launch: it prefetches its first weights into the L2 cache while the previous
// kernel runs; later weights are prefetched one iteration ahead.
#include <algorithm>

#include "lamina/ops/activation/gated_activation.cuh"
#include "lamina/ops/linear/fused/few_rows_cuda.h"
#include "lamina/ops/linear/quantized/quantized_block.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kMostWarps = 16;      // maximum number of warps per block
constexpr int kBlocksPerSm = 2;     // resident blocks of that size per SM; smaller blocks can be more
constexpr int kBlocksInFlight = 8;  // blocks of 32 columns in flight per warp
constexpr int kEightColumns = 8;    // columns of x that a lane quantizes
constexpr int kTogether = 4;        // rows of x that are loaded at once
constexpr int kMostRows = static_cast<int>(kFewRows);
constexpr int kLanes = kQuantizedBlock / kEightColumns;  // lanes that quantize one block of 32 columns of x
static_assert(kBlocksInFlight * kLanes == kWarp);

template <QuantizedFormat kFormat>
constexpr int kBlockBytes = kQuantizedRows* kQuantizedBlock / (kFormat == QuantizedFormat::q8 ? 1 : 2);
constexpr int kScaleBytes = kQuantizedRows * 2;  // bytes of the scales of a block
constexpr int kSector = 32;                      // bytes that prefetch_l2 fetches

struct FewRows {
  const void* x;          ///< [rows, in]
  const uint8_t* weight;  ///< groups of 16 weight rows, see QuantizedWeight
  const float* bias;      ///< [out or 2·out], or null
  void* y;                ///< [rows, out]
  int64_t group_bytes, scale_bytes;
  int64_t in, out;
  int rows;
  int blocks;  ///< number of blocks of 32 columns
  int share;   ///< blocks of 32 columns per warp and iteration
  int warps;   ///< warps per group
  int tiles;   ///< 2 for gated units (gates and ups), else 1
  int second;  ///< number of groups from the gates to the ups
  bool packs;  ///< true if rows of x can be read 16 bytes at a time
  Activation activation;
  Gate gate;
  GateUnit unit;
};

/// Shared memory of a warp: first scales and offset corrections of x, which the warp's sums [rows, 16] replace later;
/// then the quantized x.
struct WarpScratch {
  static constexpr int kRowBytes =
      kBlocksInFlight * kQuantizedBlock + 16;  ///< padded so that rows start in different banks
  struct Factor {
    float scale;
    int correct;
  };
  static constexpr int kFactorBytes = kBlocksInFlight * kMostRows * static_cast<int>(sizeof(Factor));
  static_assert(kFactorBytes >= kMostRows * kQuantizedRows * static_cast<int>(sizeof(float)));

  unsigned char* memory;

  __host__ __device__ static int bytes(int rows) { return kFactorBytes + rows * kRowBytes; }
  __device__ Factor* factor(int block, int row) const {
    return reinterpret_cast<Factor*>(memory) + block * kMostRows + row;
  }
  __device__ float* sum(int row, int column) const {
    return reinterpret_cast<float*>(memory) + row * kQuantizedRows + column;
  }
  __device__ unsigned char* numbers(int row) const { return memory + kFactorBytes + row * kRowBytes; }
};

/// Loads two words, or zeros if index >= count. One predicated instruction, so that no branch separates two loads.
/// Weights are read once and bypass the L1 cache, which is left to x.
__device__ inline uint2 load_pair(const uint8_t* from, int index, int count) {
  uint2 words;
  asm volatile(
      "{ .reg .pred there; setp.lt.s32 there, %3, %4; mov.b32 %0, 0; mov.b32 %1, 0; "
      "@there ld.global.cg.v2.u32 {%0, %1}, [%2]; }"
      : "=&r"(words.x), "=&r"(words.y)
      : "l"(__cvta_generic_to_global(from)), "r"(index), "r"(count));
  return words;
}
__device__ inline uint32_t load_word(const uint8_t* from, int index, int count) {
  uint32_t word;
  asm volatile("{ .reg .pred there; setp.lt.s32 there, %2, %3; mov.b32 %0, 0; @there ld.global.cg.u32 %0, [%1]; }"
               : "=&r"(word)
               : "l"(__cvta_generic_to_global(from)), "r"(index), "r"(count));
  return word;
}

__device__ inline uint4 load_four(const void* from, int index, int count) {
  uint4 words;
  asm volatile(
      "{ .reg .pred there; setp.lt.s32 there, %5, %6; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0; "
      "@there ld.global.v4.u32 {%0, %1, %2, %3}, [%4]; }"
      : "=&r"(words.x), "=&r"(words.y), "=&r"(words.z), "=&r"(words.w)
      : "l"(__cvta_generic_to_global(from)), "r"(index), "r"(count));
  return words;
}

/// The blocks of 32 columns of a group that a warp processes at once; the same in all lanes.
template <QuantizedFormat kFormat>
struct Blocks {
  const uint8_t* scales;
  const uint8_t* numbers;
  int count;  ///< number of blocks; <= 0: none

  __device__ Blocks(const FewRows& p, const uint8_t* group, int first)
      : scales(group + int64_t{first} * kScaleBytes),
        numbers(group + p.scale_bytes + int64_t{first} * kBlockBytes<kFormat>),
        count(min(p.share, p.blocks - first)) {}

  __device__ void fetch(int lane) const {
    constexpr int kSectors = kBlockBytes<kFormat> / kSector;  // sectors per block
#pragma unroll
    for (int i = 0; i < kBlocksInFlight * kSectors / kWarp; ++i) {
      const int sector = i * kWarp + lane;
      if (sector < count * kSectors) prefetch_l2(numbers + sector * kSector);
    }
    if (lane < count) prefetch_l2(scales + lane * kScaleBytes);
  }
};

/// A lane's part of Blocks. With g = lane / 4: rows 2g and 2g + 1 of each block, in the columns that lane % 4 has in a
/// tensor-core operand, and the scales of these rows for blocks lane % 4 and lane % 4 + 4.
template <QuantizedFormat kFormat>
struct HeldBlocks {
  uint2 first[kBlocksInFlight];
  uint2 second[kBlocksInFlight];
  uint32_t scales[2];

  __device__ void load(const Blocks<kFormat>& from, int lane) {
    constexpr int kBytes = kBlockBytes<kFormat>;
    const int g = lane / 4;
    const int pair = lane % 4;
    const uint8_t* numbers = from.numbers + pair * kQuantizedRows * 4 + g * 8;
#pragma unroll
    for (int i = 0; i < kBlocksInFlight; ++i) {
      first[i] = load_pair(numbers + i * kBytes, i, from.count);
      second[i] = make_uint2(0, 0);
      if constexpr (kFormat == QuantizedFormat::q8) {
        second[i] = load_pair(numbers + i * kBytes + kBytes / 2, i, from.count);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int block = half * 4 + pair;
      scales[half] = load_word(from.scales + block * kScaleBytes + g * 4, block, from.count);
    }
  }
  __device__ float2 scale(int block, int lane) const {
    const uint32_t both = __shfl_sync(kAllLanes, scales[block / 4], lane / 4 * 4 + block % 4);
    return __half22float2(*reinterpret_cast<const __half2*>(&both));
  }
};

/// Eight columns of a row of x, as loaded. They are converted later, so that nothing waits for the load.
template <class T>
struct EightColumns {
  uint4 packs[kEightColumns / Pack<T>::kSize];

  /// Loads the columns, of which the first `columns` exist. If `whole`, either all or none exist.
  __device__ void load(const T* from, int columns, bool whole) {
    constexpr int kSize = Pack<T>::kSize;
    if (whole) {
#pragma unroll
      for (int i = 0; i < kEightColumns / kSize; ++i) packs[i] = load_four(from + i * kSize, 0, columns);
      return;
    }
#pragma unroll
    for (int i = 0; i < kEightColumns / kSize; ++i) {
      Pack<T> pack;
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        pack.values[j] = i * kSize + j < columns ? from[i * kSize + j] : from_float<T>(0.0F);
      }
      packs[i] = *reinterpret_cast<const uint4*>(&pack);
    }
  }
  __device__ float value(int i) const {
    constexpr int kSize = Pack<T>::kSize;
    return to_float(reinterpret_cast<const Pack<T>*>(&packs[i / kSize])->values[i % kSize]);
  }
};

/// Quantizes eight columns per lane, as round_block() does. Four lanes form a block of 32, so a warp quantizes eight
/// blocks.
template <class T>
__device__ void round_octet(const EightColumns<T>& x, int offset, int row, int lane, const WarpScratch& own) {
  float values[kEightColumns];
  uint32_t most = 0;  // bit patterns without the sign compare like magnitudes; NaN exceeds all numbers
#pragma unroll
  for (int i = 0; i < kEightColumns; ++i) {
    values[i] = x.value(i);
    most = max(most, __float_as_uint(values[i]) & 0x7fffffffU);
  }
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) most = max(most, __shfl_xor_sync(kAllLanes, most, step));
  const float largest = __uint_as_float(most);
  const XScale scale(largest);
  int numbers[kEightColumns];
#pragma unroll
  for (int i = 0; i < kEightColumns; ++i) numbers[i] = scale.round(values[i]);
  const uint2 words = make_uint2(four_bytes(numbers[0], numbers[1], numbers[2], numbers[3]),
                                 four_bytes(numbers[4], numbers[5], numbers[6], numbers[7]));
  constexpr int kOnes = 0x01010101;
  int sum = __dp4a(static_cast<int>(words.x), kOnes, __dp4a(static_cast<int>(words.y), kOnes, 0));
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  reinterpret_cast<uint2*>(own.numbers(row))[lane] = words;
  if (lane % kLanes == 0) *own.factor(lane / kLanes, row) = {scale.value, -offset * sum};
}

/// Reads the columns of x from `first` on, eight per lane.
template <class T>
struct Source {
  const T* x;
  int64_t in;
  int columns;  ///< number of columns that exist among this lane's eight
  bool packs;

  __device__ Source(const FewRows& p, int first, int count, int lane)
      : x(static_cast<const T*>(p.x) + int64_t{first} * kQuantizedBlock + lane * kEightColumns),
        in(p.in),
        packs(p.packs) {
    const int64_t left = p.in - int64_t{first} * kQuantizedBlock - lane * kEightColumns;
    columns = lane / kLanes < count ? static_cast<int>(min(left, int64_t{kEightColumns})) : 0;
  }
  __device__ EightColumns<T> load(int row) const {
    EightColumns<T> octet;
    octet.load(x + row * in, columns, packs);
    return octet;
  }
};

template <class T>
__device__ void round_rows(const Source<T>& source, int rows, int offset, int lane, const WarpScratch& own) {
#pragma unroll 1
  for (int row = 0; row < rows; row += kTogether) {
    EightColumns<T> octets[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) octets[i] = source.load(min(row + i, rows - 1));
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (row + i < rows) round_octet(octets[i], offset, row + i, lane, own);
    }
  }
}

template <QuantizedFormat kFormat>
__device__ void add_blocks(const HeldBlocks<kFormat>& held, int count, int rows, int lane, const WarpScratch& own,
                           float (&total)[4]) {
  // The right operand has eight columns, one per row of x. Columns without a row are not used, so they may repeat the
  // last row.
  const auto* numbers = reinterpret_cast<const uint32_t*>(own.numbers(min(lane / 4, rows - 1))) + lane % 4;
  const int pair = min(lane % 4, (rows - 1) / 2);
#pragma unroll
  for (int i = 0; i < kBlocksInFlight; ++i) {
    if (i >= count) break;
    uint32_t w[4];
    unpack_numbers<kFormat>(held.first[i], held.second[i], w);
    const int4 factors = *reinterpret_cast<const int4*>(own.factor(i, pair * 2));
    add_block(w, numbers[i * 8], numbers[i * 8 + 4], make_int2(factors.y, factors.w), held.scale(i, lane),
              make_float2(__int_as_float(factors.x), __int_as_float(factors.z)), total);
  }
}

/// Sum number `item` = row · 16 + column of a tile, added over all warps.
__device__ inline float joined(const FewRows& p, unsigned char* memory, int tile, int item) {
  float sum = 0;
#pragma unroll
  for (int part = 0; part < kMostWarps; ++part) {
    if (part < p.warps) sum += *WarpScratch{memory + (tile * p.warps + part) * WarpScratch::bytes(p.rows)}.sum(0, item);
  }
  return sum;
}

template <QuantizedFormat kFormat, class T>
__global__ void __launch_bounds__(kMostWarps* kWarp, kBlocksPerSm) few_rows_kernel(const __grid_constant__ FewRows p) {
  constexpr int kOffset = kFormat == QuantizedFormat::q8 ? 128 : 8;
  extern __shared__ __align__(16) unsigned char memory[];
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp;
  const int lane = thread % kWarp;
  const int tile = warp < p.warps ? 0 : 1;
  const WarpScratch own{memory + warp * WarpScratch::bytes(p.rows)};
  const uint8_t* group = p.weight + (int64_t{blockIdx.x} + tile * p.second) * p.group_bytes;
  const int begin = (warp - tile * p.warps) * p.share;
  const int hop = p.warps * p.share;
  Blocks<kFormat>(p, group, begin).fetch(lane);
  grid_dependency_wait();

  if (p.rows % 2 != 0 && lane < kBlocksInFlight) *own.factor(lane, p.rows) = {0.0F, 0};
  float total[4] = {};
  if (p.bias != nullptr && begin == 0) {  // the sums of the first warp start from the bias
    const int64_t column = int64_t{blockIdx.x} * kQuantizedRows + lane / 4 * 2;
    const float* bias = p.bias + tile * p.out + column;
    if (column < p.out) total[0] = total[1] = bias[0];
    if (column + 1 < p.out) total[2] = total[3] = bias[1];
  }
#pragma unroll 1
  for (int first = begin; first < p.blocks; first += hop) {
    Blocks<kFormat>(p, group, first + hop).fetch(lane);
    const Blocks<kFormat> blocks(p, group, first);
    const Source<T> source(p, first, blocks.count, lane);
    HeldBlocks<kFormat> held;
    __syncwarp();  // the shared memory of the previous iteration has been read
    if (p.rows == 1) {
      const EightColumns<T> octet = source.load(0);
      held.load(blocks, lane);
      round_octet(octet, kOffset, 0, lane, own);
    } else {
      round_rows(source, p.rows, kOffset, lane, own);
      held.load(blocks, lane);
    }
    __syncwarp();
    add_blocks(held, blocks.count, p.rows, lane, own, total);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = lane % 4 * 2 + i % 2;
    if (row < p.rows) *own.sum(row, lane / 4 * 2 + i / 2) = total[i];
  }
  __syncthreads();
  const int64_t column = int64_t{blockIdx.x} * kQuantizedRows + thread % kQuantizedRows;
  if (column >= p.out) return;
  for (int item = thread; item < p.rows * kQuantizedRows; item += static_cast<int>(blockDim.x)) {
    const float sum = joined(p, memory, 0, item);
    const float value = p.tiles == 1 ? activation_value(p.activation, sum)
                                     : gate_value(p.unit, AnyGate<T>{p.gate}, {sum, joined(p, memory, 1, item)});
    static_cast<T*>(p.y)[item / kQuantizedRows * p.out + column] = from_float<T>(value);
  }
}

/// Chooses the number of blocks of 32 columns per warp and iteration, and the number of warps per group. Prefers few
/// blocks and many warps as long as all warps are resident at once. Otherwise uses at most half of a block's warps, so
/// that other blocks run while one starts or ends.
void divide(FewRows& p, int64_t tasks, int sm_count) {
  const int64_t places = int64_t{kMostWarps} * kBlocksPerSm * sm_count;  // number of warps that are resident at once
  const auto warps = [&](int share) { return (std::max(p.blocks, 1) + share - 1) / share; };
  int most = kMostWarps / p.tiles;
  p.share = kBlocksInFlight;
  while (p.share > 2 && warps(p.share / 2) <= most && tasks * warps(p.share / 2) <= places) p.share /= 2;
  if (tasks * std::min(warps(p.share), most) > places) most /= 2;
  const int rounds = (warps(p.share) + most - 1) / most;
  p.warps = (warps(p.share) + rounds - 1) / rounds;
}

template <QuantizedFormat kFormat>
void launch_types(const QuantizedLinear& args, const FewRows& p, unsigned groups) {
  const auto launch = [&](auto* kernel) {
    const int warps = p.warps * p.tiles;
    launch_dependent(kernel, dim3(groups), dim3(static_cast<unsigned>(warps * kWarp)),
                     static_cast<size_t>(warps * WarpScratch::bytes(p.rows)), args.x.device(), p);
  };
  visit_floating("quantized_linear", args.x.dtype(),
                 [&](auto tag) { launch(few_rows_kernel<kFormat, DeviceType<typename decltype(tag)::type>>); });
  check_launch("quantized_linear");
}

/// Launches the kernel. If `gated`, the first half of the weight rows are gates and fill whole groups.
void few_rows(const QuantizedLinear& args, bool gated, Gate gate, const GateOptions& options) {
  const QuantizedWeight& weight = args.weight;
  FewRows p{.x = args.x.raw(),
            .weight = weight.data.data<uint8_t>(),
            .bias = device_data<float>(args.bias),
            .y = args.y.raw(),
            .group_bytes = weight.group_bytes(),
            .scale_bytes = weight.scale_bytes(),
            .in = weight.in,
            .out = args.y.dim(1),
            .rows = static_cast<int>(args.x.dim(0)),
            .blocks = static_cast<int>(weight.blocks()),
            .share = 0,
            .warps = 0,
            .tiles = gated ? 2 : 1,
            .second = static_cast<int>(gated ? weight.groups() / 2 : 0),
            .packs = weight.in % kEightColumns == 0 && reinterpret_cast<uintptr_t>(args.x.raw()) % 16 == 0,
            .activation = args.activation,
            .gate = gate,
            .unit = GateUnit(options)};
  divide(p, weight.groups(), sm_count(args.x.device()));
  const auto groups = static_cast<unsigned>(weight.groups() / p.tiles);
  weight.format == QuantizedFormat::q8 ? launch_types<QuantizedFormat::q8>(args, p, groups)
                                       : launch_types<QuantizedFormat::q4>(args, p, groups);
}

}  // namespace

void quantized_few_rows(const QuantizedLinear& args) { few_rows(args, false, Gate::liglu, {}); }

void quantized_gated_few_rows(const QuantizedGatedLinear& args) {
  few_rows(args.product, true, args.gate, args.options);
}

}  // namespace lamina::ops::cuda
