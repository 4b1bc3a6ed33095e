// Quantizing rows of x and multiplying them with groups of a quantized weight by 8-bit dot products.
#if defined(LAMINA_OPS_LINEAR_QUANTIZED_QUANTIZED_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_LINEAR_QUANTIZED_QUANTIZED_ROWS_INL_H_
#undef LAMINA_OPS_LINEAR_QUANTIZED_QUANTIZED_ROWS_INL_H_
#else
#define LAMINA_OPS_LINEAR_QUANTIZED_QUANTIZED_ROWS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/linear/quantized_linear_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

inline constexpr int64_t kBlockColumns = QuantizedWeight::kBlock;
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
  int64_t next;  ///< bytes to the group that a single row of x is multiplied with after this one
};

/// Groups per tile for a single row of x. Its weights come from memory, and more groups keep more loads in flight.
inline constexpr int kRowGroups = 4;

inline Group group_of(const QuantizedWeight& weight, int64_t index) {
  const uint8_t* at = weight.data.data<uint8_t>() + index * weight.group_bytes();
  return {reinterpret_cast<const f16*>(at), at + weight.scale_bytes(), kRowGroups * weight.group_bytes()};
}

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

/// Prefetches what a single row of x needs next: values and scales of this group or, at its end, the start of the next
/// one. Hardware prefetchers stop at page boundaries.
template <QuantizedFormat kFormat>
HWY_INLINE void prefetch_block(const Group& group, int64_t block, int64_t blocks) {
  constexpr int64_t kAhead = kFormat == QuantizedFormat::q8 ? 2 : 8;  // blocks
  constexpr int64_t kBytes = kGroupRows * (kFormat == QuantizedFormat::q8 ? kBlockColumns : kBlockColumns / 2);
  constexpr int64_t kScaleBytes = kGroupRows * static_cast<int64_t>(sizeof(f16));
  const bool ends = block + kAhead >= blocks;
  const int64_t ahead = ends ? block + kAhead - blocks : block + kAhead;
  const int64_t skip = ends ? group.next : 0;
  const uint8_t* values = group.numbers + skip + ahead * kBytes;
#pragma GCC unroll 8
  for (int64_t line = 0; line < kBytes; line += 64) hwy::Prefetch(values + line);
  hwy::Prefetch(reinterpret_cast<const uint8_t*>(group.scales) + skip + ahead * kScaleBytes);
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
        at[i] = x.numbers + (i * x.blocks + block) * kBlockColumns;
        const VecI start = hn::Set(di, x.offset_corrections[i * x.blocks + block]);
#pragma GCC unroll 4
        for (int g = 0; g < kGroups; ++g) sum[i][g] = start;
      }
      if constexpr (kX == 1) {
#pragma GCC unroll 4
        for (int g = 0; g < kGroups; ++g) prefetch_block<kFormat>(groups[g], block, x.blocks);
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
inline void round_row(const float* x, int64_t in, int64_t blocks, int64_t step, int32_t offset, int8_t* numbers,
                      float* scales, int32_t* offset_corrections) {
  const LaneF d;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = block * kBlockColumns;
    const int64_t count = std::min(kBlockColumns, in - first);
    HWY_ALIGN float values[kBlockColumns] = {};
    std::memcpy(values, x + first, static_cast<size_t>(count) * sizeof(float));
    auto most = hn::Zero(d);
    auto broken = hn::FirstN(d, 0);
    for (int64_t i = 0; i < kBlockColumns; i += kLaneCount) {
      const auto value = hn::Load(d, values + i);
      most = hn::Max(most, hn::Abs(value));
      broken = hn::Or(broken, hn::IsNaN(value));
    }
    const float largest = hn::AllFalse(d, broken) ? hn::GetLane(hn::MaxOfLanes(d, most)) : NAN;
    const float scale = largest / 127.0F;
    int8_t* to = numbers + first * step;
    scales[block * step] = scale;
    if (!std::isfinite(scale)) {  // the scale alone turns every sum into NaN
      std::fill_n(to, kBlockColumns, int8_t{0});
      offset_corrections[block * step] = 0;
      continue;
    }
    // If the scale is too small to divide by, the block counts as zeros.
    const auto inverse = hn::Set(d, scale > 1e-37F ? 127.0F / largest : 0.0F);
    const hn::Rebind<int8_t, LaneF> d8;
    auto sum = hn::Zero(LaneI());
    for (int64_t i = 0; i < kBlockColumns; i += kLaneCount) {
      const auto whole = hn::NearestInt(hn::Mul(hn::Load(d, values + i), inverse));
      sum = hn::Add(sum, whole);
      hn::StoreU(hn::DemoteTo(d8, whole), d8, to + i);
    }
    offset_corrections[block * step] = -offset * hn::GetLane(hn::SumOfLanes(LaneI(), sum));
  }
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
