// quantized_linear() on a CPU. A vector holds 16 weight rows × 4 columns and is multiplied with four values of x,
// broadcast to all lanes. So sums stay in their lanes and need no horizontal add. The weights are unsigned and x is
// signed, as the CPU's 8-bit dot product expects (AVX-512 VNNI). The offset of the unsigned weights is corrected by
// −128 · Σ x (q4: −8 · Σ x), computed once per block of x, from which each sum starts.
//
// With one row of x, the weights are read once, sequentially, at memory bandwidth. With many rows, a pair of groups
// stays in the L1 cache while it is multiplied with tiles of six rows. From int8_tiled_rows() rows on, tile
// instructions multiply 16 rows with a group (gemm/int8_tile.h). x is then stored in tiles, and a group's weights are
// unpacked to signed bytes, which need no correction.
//
// Integer sums are exact and blocks are added in order. So results are bit-identical for any number of threads, for any
// number of other rows, and with either instruction.
#define HWY_WANT_AVX3_DL  // VNNI, if the CPU supports it
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/linear/quantized/quantized_linear_cpu.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/activation/activation-inl.h"
#include "lamina/ops/kernel_dispatch.h"
#include "lamina/ops/linear/gemm/gemm_scratch.h"
#include "lamina/ops/linear/gemm/int8_tile.h"
#include "lamina/ops/linear/quantized_linear_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

inline constexpr int64_t kBlock = QuantizedWeight::kBlock;
inline constexpr int64_t kGroupRows = QuantizedWeight::kRows;

/// Vectors of at most 16 32-bit lanes, so that the 16 rows of a group fill a whole number of vectors.
using LaneF = hn::CappedTag<float, kGroupRows>;
using LaneI = hn::RebindToSigned<LaneF>;
using LaneBytes = hn::Repartition<uint8_t, LaneI>;
using VecF = hn::Vec<LaneF>;
using VecI = hn::Vec<LaneI>;
using VecBytes = hn::Vec<LaneBytes>;
inline constexpr int kLaneCount = static_cast<int>(hn::MaxLanes(LaneF()));
/// Number of vectors per group.
inline constexpr int kParts = static_cast<int>(kGroupRows) / kLaneCount;

/// Returns sum + Σ w · x over four columns, in every lane: w unsigned, x four signed values broadcast to all lanes.
HWY_INLINE VecI add_quads(VecI sum, VecBytes w, const int8_t* x) {
#if HWY_TARGET <= HWY_AVX3_DL || (defined(__AVX512VNNI__) && HWY_TARGET == HWY_AVX3)
  // Inline assembly, because compilers do not enable the instruction for this target, although every CPU that runs this
  // target has it.
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

/// x quantized to 8 bits in blocks.
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

/// Adds one block of columns to the sums, for vector `part` of the rows: 8 steps of four columns (q8), or 4 steps that
/// use both halves of a byte (q4).
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

/// Prefetches the weights that a single row of x needs next, because hardware prefetchers stop at page boundaries.
template <QuantizedFormat kFormat>
HWY_INLINE void prefetch_l2(const uint8_t* numbers, int64_t block) {
  constexpr int64_t kAhead = 1024;
  constexpr int64_t kBytes = kGroupRows * (kFormat == QuantizedFormat::q8 ? kBlock : kBlock / 2);
#pragma GCC unroll 8
  for (int64_t line = 0; line < kBytes; line += 64) hwy::Prefetch(numbers + block * kBytes + kAhead + line);
}

/// Multiplies kX rows of x with kGroups groups. Writes the result of row i and row `lane` of group g to to[i·ld + 16·g
/// + lane].
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

/// Rows of x and groups of weights per tile, limited by registers.
inline constexpr int kTileX = 6;
inline constexpr int kTileGroups = 2;
/// Groups per tile for a single row of x. Its weights come from memory, and more groups keep more loads in flight.
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

/// Quantizes a row of x to 8 bits in blocks. The results of consecutive blocks are `step` blocks apart.
void round_row(const float* x, int64_t in, int64_t blocks, int64_t step, int32_t offset, int8_t* numbers, float* scales,
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
    int8_t* to = numbers + first * step;
    scales[block * step] = scale;
    if (!std::isfinite(scale)) {  // the scale alone turns every sum into NaN
      std::fill_n(to, kBlock, int8_t{0});
      offset_corrections[block * step] = 0;
      continue;
    }
    // If the scale is too small to divide by, the block counts as zeros.
    const auto inverse = hn::Set(d, scale > 1e-37F ? 127.0F / largest : 0.0F);
    const hn::Rebind<int8_t, LaneF> d8;
    auto sum = hn::Zero(LaneI());
    for (int64_t i = 0; i < kBlock; i += kLaneCount) {
      const auto whole = hn::NearestInt(hn::Mul(hn::Load(d, values + i), inverse));
      sum = hn::Add(sum, whole);
      hn::StoreU(hn::DemoteTo(d8, whole), d8, to + i);
    }
    offset_corrections[block * step] = -offset * hn::GetLane(hn::SumOfLanes(LaneI(), sum));
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

/// Unpacks blocks [first, first + count) of a group to signed bytes [count, 8, 16, 4], and its scales to f32.
template <QuantizedFormat kFormat>
void unpack_group(const Group& group, int64_t first, int64_t count, int8_t* numbers, float* scales) {
  const hn::ScalableTag<uint8_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kBytes = kGroupRows * kBlock;
  auto* to = reinterpret_cast<uint8_t*>(numbers);
  if constexpr (kFormat == QuantizedFormat::q8) {
    const uint8_t* from = group.numbers + first * kBytes;
    const auto sign = hn::Set(d, uint8_t{0x80});
    for (int64_t i = 0; i < count * kBytes; i += lanes) hn::StoreU(hn::Xor(hn::LoadU(d, from + i), sign), d, to + i);
  } else {
    const hn::Repartition<uint16_t, decltype(d)> dw;
    const auto low = hn::Set(d, uint8_t{0x0f});
    const auto offset = hn::Set(d, uint8_t{8});
    for (int64_t block = 0; block < count; ++block) {
      const uint8_t* from = group.numbers + (first + block) * kBytes / 2;
      uint8_t* out = to + block * kBytes;
      for (int64_t i = 0; i < kBytes / 2; i += lanes) {
        const auto w = hn::LoadU(d, from + i);
        const auto high = hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(dw, w))), low);
        hn::StoreU(hn::Sub(hn::And(w, low), offset), d, out + i);
        hn::StoreU(hn::Sub(high, offset), d, out + kBytes / 2 + i);
      }
    }
  }
  const LaneF df;
  for (int64_t i = 0; i < count * kGroupRows; i += kLaneCount) {
    hn::StoreU(load(df, group.scales + first * kGroupRows + i), df, scales + i);
  }
}

/// Blocks of k per section, so that the unpacked weights of a group and one tile of x stay in the L1 cache.
inline constexpr int64_t kSectionBlocks = 32;
/// Rows of x per section, so that they stay in the L2 cache for all groups of a task.
inline constexpr int64_t kSectionRows = 512;

/// run_groups() with tile instructions, for rows [row_begin, row_end).
template <QuantizedFormat kFormat, class Function>
void run_tiled_groups(const QuantizedLinear& args, TileUnit unit, Function activation, int64_t begin, int64_t end,
                      int64_t row_begin, int64_t row_end) {
  const QuantizedWeight& weight = args.weight;
  const int64_t blocks = weight.blocks();
  const auto* numbers = reinterpret_cast<const int8_t*>(args.numbers.data<uint8_t>());
  const float* x_scales = args.scales.data<float>();
  const float* y = args.y.data<float>();
  HWY_ALIGN int8_t weights[kSectionBlocks * kBlock * kGroupRows];
  HWY_ALIGN float scales[kSectionBlocks * kGroupRows];
  HWY_ALIGN float tile[kTileSide * kGroupRows];
  float* sums = nullptr;  // [groups, rows, 16]: sums between two sections of k
  if (blocks > kSectionBlocks) {
    sums = gemm_scratch<float>(GemmScratch::block, (end - begin) * kSectionRows * kGroupRows);
  }
  const Int8TiledFn multiply = int8_tiled(unit);
  for (int64_t first = 0; first < blocks; first += kSectionBlocks) {
    const int64_t count = std::min(kSectionBlocks, blocks - first);
    const bool last = first + count == blocks;
    for (int64_t g = begin; g < end; ++g) {
      const uint8_t* at = weight.data.data<uint8_t>() + g * weight.group_bytes();
      unpack_group<kFormat>({reinterpret_cast<const f16*>(at), at + weight.scale_bytes()}, first, count, weights,
                            scales);
      const int64_t column = g * kGroupRows;
      const int64_t columns = std::min(kGroupRows, weight.out - column);
      for (int64_t row = row_begin; row < row_end; row += kTileSide) {
        float* to = sums == nullptr ? tile : sums + ((g - begin) * kSectionRows + row - row_begin) * kGroupRows;
        const int64_t block = row * blocks + first * kTileSide;
        const int64_t height = std::min(kTileSide, row_end - row);
        // Tiles pass their sums to the vector unit through the L1 cache, where they would wait for stores to y that
        // miss. So prefetch the lines of y.
        for (int64_t i = 0; last && i < height; ++i) __builtin_prefetch(y + (row + i) * weight.out + column, 1);
        multiply({numbers + block * kBlock, x_scales + block, weights, scales, count}, first == 0 ? 0.0F : 1.0F, to);
        if (last) finish_tile(args, activation, to, kGroupRows, row, height, column, columns);
      }
    }
  }
}

/// Quantizes all rows of x: one after the other or, if `tiled`, as tiles [rows / 16, blocks, 16, 32] padded with zeros.
void round_rows(const QuantizedLinear& args, int32_t offset, bool tiled) {
  const int64_t rows = args.x.dim(0);
  const int64_t in = args.weight.in;
  const int64_t blocks = args.weight.blocks();
  const int64_t side = tiled ? kTileSide : 1;
  auto* numbers = reinterpret_cast<int8_t*>(args.numbers.data<uint8_t>());
  const int64_t padded = tiled ? args.numbers.dim(0) : rows;
  args.x.device().threads().ranges(padded, rows_per_range(in), [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t first = row / side * side * blocks + row % side;
      if (row < rows) {
        round_row(args.x.data<float>() + row * in, in, blocks, side, offset, numbers + first * kBlock,
                  args.scales.data<float>() + first, args.offset_corrections.data<int32_t>() + first);
        continue;
      }
      for (int64_t block = 0; block < blocks; ++block) {
        std::fill_n(numbers + (first + block * side) * kBlock, kBlock, int8_t{0});
        args.scales.data<float>()[first + block * side] = 0.0F;
      }
    }
  });
}

template <QuantizedFormat kFormat>
void run_format(const QuantizedLinear& args, std::optional<TileUnit> tiles) {
  const Threads& threads = args.x.device().threads();
  const int64_t rows = args.x.dim(0);
  round_rows(args, kFormat == QuantizedFormat::q8 ? 128 : 8, tiles.has_value());
  // A single row: tasks of 24 to 96 KiB of weights, two per thread if that is within these limits. Every task must
  // start its memory streams, and no thread should wait long for the last one. More rows: 24 KiB, or less if many rows
  // make each task long.
  const int64_t bytes = std::max<int64_t>(args.weight.group_bytes() * std::max<int64_t>(rows / 4, 1), 1);
  const int64_t share = rows > 1 ? 0 : args.weight.groups() * bytes / (2 * threads.count());
  const int64_t grain =
      std::max<int64_t>(std::clamp<int64_t>(share, 24576, 98304) / bytes / kRowGroups, 1) * kRowGroups;
  visit_activation(args.activation, [&](auto kind) {
    threads.ranges(args.weight.groups(), grain, [&](int64_t begin, int64_t end) {
      if (!tiles) return run_groups<kFormat>(args, kind, begin, end);
      const TileScope scope(*tiles, TileShape::half_depth);
      for (int64_t row = 0; row < rows; row += kSectionRows) {
        run_tiled_groups<kFormat>(args, *tiles, kind, begin, end, row, std::min(rows, row + kSectionRows));
      }
    });
  });
}

void quantized_linear(const QuantizedLinear& args, std::optional<TileUnit> tiles) {
  if (args.y.numel() == 0) return;
  args.weight.format == QuantizedFormat::q8 ? run_format<QuantizedFormat::q8>(args, tiles)
                                            : run_format<QuantizedFormat::q4>(args, tiles);
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
namespace {

/// The tile unit for a product of `rows` rows; empty: use dot products. ForcedKernel for "cpu_int8_product" overrides
/// the choice.
std::optional<TileUnit> int8_tiles_for(const Device& device, QuantizedFormat format, int64_t rows) {
  constexpr const char* kOp = "cpu_int8_product";
  const bool forced = !device.forced_kernel(kOp).empty();
  if (allows_kernel(device, kOp, "int8_tile") && has_int8_tiles() && (forced || rows >= int8_tiled_rows(format))) {
    return TileUnit::amx;
  }
  if (allows_kernel(device, kOp, "int8_dot")) return std::nullopt;
  if (allows_kernel(device, kOp, "int8_tile_emulated") && can_emulate_tiles()) return TileUnit::emulated;
  reject_call(device, kOp);
}

}  // namespace

HWY_EXPORT(quantized_linear);
namespace cpu {
void quantized_linear(const QuantizedLinear& args) {
  require_kernel(args.x.device(), "quantized_linear", "cpu");
  std::optional<TileUnit> tiles;
  if (args.weight.in > 0) tiles = int8_tiles_for(args.x.device(), args.weight.format, args.x.dim(0));
  HWY_DYNAMIC_DISPATCH(quantized_linear)(args, tiles);
}
}  // namespace cpu
}  // namespace lamina::ops
#endif
