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
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <optional>

#include "lamina/ops/activation/activation-inl.h"
#include "lamina/ops/kernel_dispatch.h"
#include "lamina/ops/linear/gemm/gemm_scratch.h"
#include "lamina/ops/linear/gemm/int8_tile.h"
#include "lamina/ops/linear/quantized/quantized_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

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
  const auto* numbers = reinterpret_cast<const int8_t*>(args.numbers.data<uint8_t>());
  HWY_ALIGN float tile[std::max(kTileX * kTileGroups, kRowGroups) * kGroupRows];
  const int64_t step = rows == 1 ? kRowGroups : kTileGroups;
  for (int64_t g = begin; g < end; g += step) {
    const int64_t count = std::min<int64_t>(step, end - g);
    Group groups[std::max(kTileGroups, kRowGroups)];
    for (int64_t i = 0; i < count; ++i) groups[i] = group_of(weight, g + i);
    const int64_t column = g * kGroupRows;
    const int64_t columns = std::min(count * kGroupRows, weight.out - column);
    for (int64_t row = 0; row < rows; row += kTileX) {
      const int64_t height = std::min<int64_t>(kTileX, rows - row);
      const Rounded x{numbers + row * blocks * kBlockColumns, args.scales.data<float>() + row * blocks,
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
  constexpr int64_t kBytes = kGroupRows * kBlockColumns;
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
  HWY_ALIGN int8_t weights[kSectionBlocks * kBlockColumns * kGroupRows];
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
      unpack_group<kFormat>(group_of(weight, g), first, count, weights, scales);
      const int64_t column = g * kGroupRows;
      const int64_t columns = std::min(kGroupRows, weight.out - column);
      for (int64_t row = row_begin; row < row_end; row += kTileSide) {
        float* to = sums == nullptr ? tile : sums + ((g - begin) * kSectionRows + row - row_begin) * kGroupRows;
        const int64_t block = row * blocks + first * kTileSide;
        const int64_t height = std::min(kTileSide, row_end - row);
        // Tiles pass their sums to the vector unit through the L1 cache, where they would wait for stores to y that
        // miss. So prefetch the lines of y.
        for (int64_t i = 0; last && i < height; ++i) __builtin_prefetch(y + (row + i) * weight.out + column, 1);
        multiply({numbers + block * kBlockColumns, x_scales + block, weights, scales, count}, first == 0 ? 0.0F : 1.0F,
                 to);
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
        round_row(args.x.data<float>() + row * in, in, blocks, side, offset, numbers + first * kBlockColumns,
                  args.scales.data<float>() + first, args.offset_corrections.data<int32_t>() + first);
        continue;
      }
      for (int64_t block = 0; block < blocks; ++block) {
        std::fill_n(numbers + (first + block * side) * kBlockColumns, kBlockColumns, int8_t{0});
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
