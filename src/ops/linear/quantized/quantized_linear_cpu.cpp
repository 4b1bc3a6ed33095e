// A vector holds 16 rows × 4 weights and is multiplied with four values of x broadcast to all lanes, so sums stay in
// their lanes and need no horizontal add. Unsigned weights times signed x is the operand order of the CPU's 8-bit dot
// product (AVX-512 VNNI). The offset of the unsigned weights is compensated by −128 · Σ x (−8 · Σ x), computed once per
// block of x, from which each sum starts. With one row of x the weights are read once, sequentially, at memory
// bandwidth. With many, a pair of groups stays in the L1 cache while tiles of six rows pass by. Integer sums are exact
// and blocks are added in order: the result is bit-identical for any number of threads and any tiling.
#define HWY_WANT_AVX3_DL  // VNNI, if the CPU supports it
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/linear/quantized/quantized_linear_cpu.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/activation/activation-inl.h"
#include "lamina/ops/kernel_dispatch.h"
#include "lamina/ops/linear/quantized_linear_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: the vector helpers of this target

inline constexpr int64_t kBlock = QuantizedWeight::kBlock;
inline constexpr int64_t kGroupRows = QuantizedWeight::kRows;

/// Vectors of at most 16 32-bit lanes, so that a whole number of them holds a group's rows.
using LaneF = hn::CappedTag<float, kGroupRows>;
using LaneI = hn::RebindToSigned<LaneF>;
using LaneBytes = hn::Repartition<uint8_t, LaneI>;
using VecF = hn::Vec<LaneF>;
using VecI = hn::Vec<LaneI>;
using VecBytes = hn::Vec<LaneBytes>;
inline constexpr int kLaneCount = static_cast<int>(hn::MaxLanes(LaneF()));
/// Vectors in a group.
inline constexpr int kParts = static_cast<int>(kGroupRows) / kLaneCount;

/// sum + Σ_4 w · x in every lane: w unsigned, x four signed values broadcast to all lanes.
HWY_INLINE VecI add_quads(VecI sum, VecBytes w, const int8_t* x) {
#if HWY_TARGET <= HWY_AVX3_DL || (defined(__AVX512VNNI__) && HWY_TARGET == HWY_AVX3)
  // Inline asm: compilers do not enable the instruction for this target, although every CPU dispatched to it has it.
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum.raw) : "v"(w.raw), "m"(*reinterpret_cast<const int32_t*>(x)));
  return sum;
#else
  const LaneI d;
  const hn::RebindToUnsigned<LaneI> du;
  const auto bytes = hn::BitCast(du, w);
  const auto mask = hn::Set(du, 0xffU);
  const auto product = [&](auto w_byte, int8_t number)
                           HWY_ATTR { return hn::Mul(hn::BitCast(d, w_byte), hn::Set(d, int32_t{number})); };
  sum = hn::Add(sum, product(hn::And(bytes, mask), x[0]));
  sum = hn::Add(sum, product(hn::And(hn::ShiftRight<8>(bytes), mask), x[1]));
  sum = hn::Add(sum, product(hn::And(hn::ShiftRight<16>(bytes), mask), x[2]));
  return hn::Add(sum, product(hn::ShiftRight<24>(bytes), x[3]));
#endif
}

/// x in 8-bit blocks.
struct Rounded {
  const int8_t* numbers;
  const float* scales;
  const int32_t* offset_corrections;
  int64_t blocks;
};

/// One group of 16 weight rows.
struct Group {
  const f16* scales;
  const uint8_t* numbers;
};

/// Adds a block for part `part` of the rows, in 8 steps (q8) or, both halves of a byte at once, in 4 (q4).
template <QuantizedFormat kFormat, int kX, int kGroups>
HWY_INLINE void add_block(const uint8_t* const (&numbers)[kGroups], int64_t block, int part,
                          const int8_t* const (&x)[kX], VecI (&sum)[kX][kGroups]) {
  const LaneBytes db;
  constexpr int kSteps = kFormat == QuantizedFormat::q8 ? 8 : 4;
  const auto low = hn::Set(db, uint8_t{0x0f});
#pragma GCC unroll 8
  for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      const auto w =
          hn::LoadU(db, numbers[g] + ((block * kSteps + step) * kParts + part) * static_cast<int64_t>(hn::Lanes(db)));
      if constexpr (kFormat == QuantizedFormat::q8) {
#pragma GCC unroll 8
        for (int i = 0; i < kX; ++i) sum[i][g] = add_quads(sum[i][g], w, x[i] + step * 4);
      } else {
        const hn::Repartition<uint16_t, LaneBytes> dw;
        const auto first = hn::And(w, low);
        const auto second = hn::And(hn::BitCast(db, hn::ShiftRight<4>(hn::BitCast(dw, w))), low);
#pragma GCC unroll 8
        for (int i = 0; i < kX; ++i) {
          sum[i][g] = add_quads(sum[i][g], first, x[i] + step * 4);
          sum[i][g] = add_quads(sum[i][g], second, x[i] + 16 + step * 4);
        }
      }
    }
  }
}

/// Prefetches what a single row of x reads next: hardware prefetchers stop at page boundaries.
template <QuantizedFormat kFormat>
HWY_INLINE void prefetch_l2(const uint8_t* numbers, int64_t block) {
  constexpr int64_t kAhead = 1024;
  constexpr int64_t kBytes = kGroupRows * (kFormat == QuantizedFormat::q8 ? kBlock : kBlock / 2);
#pragma GCC unroll 8
  for (int64_t line = 0; line < kBytes; line += 64) hwy::Prefetch(numbers + block * kBytes + kAhead + line);
}

/// Multiplies kX rows of x with kGroups groups: to[i·ld + 16·g + lane].
template <QuantizedFormat kFormat, int kX, int kGroups>
HWY_NOINLINE void multiply_tile(const Rounded& x, const Group* groups, float* to, int64_t ld) {
  const LaneF df;
  const LaneI di;
  const uint8_t* numbers[kGroups];
  for (int g = 0; g < kGroups; ++g) numbers[g] = groups[g].numbers;
  for (int part = 0; part < kParts; ++part) {
    VecF total[kX][kGroups];
#pragma GCC unroll 8
    for (int i = 0; i < kX; ++i) {
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) total[i][g] = hn::Zero(df);
    }
    for (int64_t block = 0; block < x.blocks; ++block) {
      VecI sum[kX][kGroups];
      const int8_t* at[kX];
#pragma GCC unroll 8
      for (int i = 0; i < kX; ++i) {
        at[i] = x.numbers + (i * x.blocks + block) * kBlock;
        const VecI start = hn::Set(di, x.offset_corrections[i * x.blocks + block]);
#pragma GCC unroll 4
        for (int g = 0; g < kGroups; ++g) sum[i][g] = start;
      }
      if constexpr (kX == 1) {
#pragma GCC unroll 4
        for (int g = 0; g < kGroups; ++g) prefetch_l2<kFormat>(numbers[g], block);
      }
      add_block<kFormat>(numbers, block, part, at, sum);
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) {
        const VecF scale = load(df, groups[g].scales + block * kGroupRows + part * kLaneCount);
#pragma GCC unroll 8
        for (int i = 0; i < kX; ++i) {
          const VecF both = hn::Mul(scale, hn::Set(df, x.scales[i * x.blocks + block]));
          total[i][g] = hn::MulAdd(hn::ConvertTo(df, sum[i][g]), both, total[i][g]);
        }
      }
    }
    for (int i = 0; i < kX; ++i) {
      for (int g = 0; g < kGroups; ++g) {
        hn::StoreU(total[i][g], df, to + i * ld + g * kGroupRows + part * kLaneCount);
      }
    }
  }
}

/// Rows of x and groups of weights per tile, as registers allow.
inline constexpr int kTileX = 6;
inline constexpr int kTileGroups = 2;
/// Groups at once for a single row, whose weights come from memory: more loads are in flight.
inline constexpr int kRowGroups = 4;

template <QuantizedFormat kFormat, int kGroups, int kX = kTileX>
void multiply_rows(int64_t rows, const Rounded& x, const Group* groups, float* to, int64_t ld) {
  if (rows >= kX) return multiply_tile<kFormat, kX, kGroups>(x, groups, to, ld);
  if constexpr (kX > 1) multiply_rows<kFormat, kGroups, kX - 1>(rows, x, groups, to, ld);
}

template <QuantizedFormat kFormat, int kGroups = kRowGroups>
void multiply_row(int64_t count, const Rounded& x, const Group* groups, float* to) {
  if (count >= kGroups) return multiply_tile<kFormat, 1, kGroups>(x, groups, to, 0);
  if constexpr (kGroups > 1) multiply_row<kFormat, kGroups - 1>(count, x, groups, to);
}

/// Quantizes a row of x to 8-bit blocks.
void round_row(const float* x, int64_t in, int64_t blocks, int32_t offset, int8_t* numbers, float* scales,
               int32_t* offset_corrections) {
  const LaneF d;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = block * kBlock;
    const int64_t count = std::min(kBlock, in - first);
    HWY_ALIGN float values[kBlock] = {};
    std::memcpy(values, x + first, static_cast<size_t>(count) * sizeof(float));
    auto most = hn::Zero(d);
    auto broken = hn::FirstN(d, 0);
    for (int64_t i = 0; i < kBlock; i += kLaneCount) {
      const auto value = hn::Load(d, values + i);
      most = hn::Max(most, hn::Abs(value));
      broken = hn::Or(broken, hn::IsNaN(value));
    }
    const float largest = hn::AllFalse(d, broken) ? hn::GetLane(hn::MaxOfLanes(d, most)) : NAN;
    const float scale = largest / 127.0F;
    if (!std::isfinite(scale)) {  // the scale alone turns every sum into NaN
      std::fill_n(numbers + first, kBlock, int8_t{0});
      scales[block] = scale;
      offset_corrections[block] = 0;
      continue;
    }
    // A scale too small to divide by counts as a block of zeros.
    const auto inverse = hn::Set(d, scale > 1e-37F ? 127.0F / largest : 0.0F);
    const hn::Rebind<int8_t, LaneF> d8;
    auto sum = hn::Zero(LaneI());
    for (int64_t i = 0; i < kBlock; i += kLaneCount) {
      const auto whole = hn::NearestInt(hn::Mul(hn::Load(d, values + i), inverse));
      sum = hn::Add(sum, whole);
      hn::StoreU(hn::DemoteTo(d8, whole), d8, numbers + first + i);
    }
    scales[block] = scale;
    offset_corrections[block] = -offset * hn::GetLane(hn::SumOfLanes(LaneI(), sum));
  }
}

/// Applies bias and activation to rows [0, rows) of columns [column, column + columns) of a tile.
template <class Function>
void finish_tile(const QuantizedLinear& args, Function /*activation*/, const float* tile, int64_t ld, int64_t row,
                 int64_t rows, int64_t column, int64_t columns) {
  const hn::ScalableTag<float> d;
  const float* bias = args.bias.defined() ? args.bias.data<float>() + column : nullptr;
  for (int64_t i = 0; i < rows; ++i) {
    float* y = args.y.data<float>() + (row + i) * args.weight.out + column;
    for_vectors(d, columns, [&](int64_t j, size_t count) HWY_ATTR {
      auto value = load_n(d, tile + i * ld + j, count);
      if (bias != nullptr) value = hn::Add(value, load_n(d, bias + j, count));
      store_n(d, Function::value(d, value), y + j, count);
    });
  }
}

template <QuantizedFormat kFormat, class Function>
void run_groups(const QuantizedLinear& args, Function activation, int64_t begin, int64_t end) {
  const QuantizedWeight& weight = args.weight;
  const int64_t rows = args.x.dim(0);
  const int64_t blocks = weight.blocks();
  const uint8_t* data = weight.data.data<uint8_t>();
  const auto* numbers = reinterpret_cast<const int8_t*>(args.numbers.data<uint8_t>());
  HWY_ALIGN float tile[std::max(kTileX * kTileGroups, kRowGroups) * kGroupRows];
  const int64_t step = rows == 1 ? kRowGroups : kTileGroups;
  for (int64_t g = begin; g < end; g += step) {
    const int64_t count = std::min<int64_t>(step, end - g);
    Group groups[std::max(kTileGroups, kRowGroups)];
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t* at = data + (g + i) * weight.group_bytes();
      groups[i] = {reinterpret_cast<const f16*>(at), at + weight.scale_bytes()};
    }
    const int64_t column = g * kGroupRows;
    const int64_t columns = std::min(count * kGroupRows, weight.out - column);
    for (int64_t row = 0; row < rows; row += kTileX) {
      const int64_t height = std::min<int64_t>(kTileX, rows - row);
      const Rounded x{numbers + row * blocks * kBlock, args.scales.data<float>() + row * blocks,
                      args.offset_corrections.data<int32_t>() + row * blocks, blocks};
      const int64_t ld = kTileGroups * kGroupRows;
      if (rows == 1) {
        multiply_row<kFormat>(count, x, groups, tile);
      } else if (count == kTileGroups) {
        multiply_rows<kFormat, kTileGroups>(height, x, groups, tile, ld);
      } else {
        multiply_rows<kFormat, 1>(height, x, groups, tile, ld);
      }
      finish_tile(args, activation, tile, ld, row, height, column, columns);
    }
  }
}

template <QuantizedFormat kFormat>
void run_format(const QuantizedLinear& args) {
  const Threads& threads = args.x.device().threads();
  const int64_t rows = args.x.dim(0);
  const int64_t in = args.weight.in;
  const int64_t blocks = args.weight.blocks();
  threads.ranges(rows, rows_per_range(in), [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t row = begin; row < end; ++row) {
      round_row(args.x.data<float>() + row * in, in, blocks, kFormat == QuantizedFormat::q8 ? 128 : 8,
                reinterpret_cast<int8_t*>(args.numbers.data<uint8_t>()) + row * blocks * kBlock,
                args.scales.data<float>() + row * blocks, args.offset_corrections.data<int32_t>() + row * blocks);
    }
  });
  // A single row: ranges of 24 to 96 KiB of weights, two per thread if that is in between. Every range must start its
  // memory streams, and no thread should wait long for the last one. More rows: 24 KiB, or less if many rows make each
  // range long.
  const int64_t bytes = std::max<int64_t>(args.weight.group_bytes() * std::max<int64_t>(rows / 4, 1), 1);
  const int64_t share = rows > 1 ? 0 : args.weight.groups() * bytes / (2 * threads.count());
  const int64_t grain =
      std::max<int64_t>(std::clamp<int64_t>(share, 24576, 98304) / bytes / kRowGroups, 1) * kRowGroups;
  visit_activation(args.activation, [&](auto kind) {
    threads.ranges(args.weight.groups(), grain,
                   [&](int64_t begin, int64_t end) { run_groups<kFormat>(args, kind, begin, end); });
  });
}

void quantized_linear(const QuantizedLinear& args) {
  if (args.y.numel() == 0) return;
  args.weight.format == QuantizedFormat::q8 ? run_format<QuantizedFormat::q8>(args)
                                            : run_format<QuantizedFormat::q4>(args);
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(quantized_linear);
namespace cpu {
void quantized_linear(const QuantizedLinear& args) {
  require_kernel(args.x.device(), "quantized_linear", "cpu");
  HWY_DYNAMIC_DISPATCH(quantized_linear)(args);
}
}  // namespace cpu
}  // namespace lamina::ops
#endif
