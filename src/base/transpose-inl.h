// Transposes squares of 32-bit values in registers, with as many rows as a vector has lanes.
#if defined(LAMINA_BASE_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_BASE_TRANSPOSE_INL_H_
#undef LAMINA_BASE_TRANSPOSE_INL_H_
#else
#define LAMINA_BASE_TRANSPOSE_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lamina::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Transposes the 4×4 square in each 128-bit block of four rows.
template <class D>
HWY_INLINE void transpose_blocks(D d, hn::Vec<D>* row) {
  const hn::Repartition<double, D> pairs;
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, row[0], row[1]));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, row[2], row[3]));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, row[0], row[1]));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, row[2], row[3]));
  row[0] = hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23));
  row[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23));
  row[2] = hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23));
  row[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23));
}

/// Swaps rows and lanes: element (row i, lane l) goes to (row l, lane i). For vectors of 4, 8 or 16 32-bit lanes.
template <class D, int kRows = static_cast<int>(hn::MaxLanes(D()))>
HWY_INLINE void transpose_square(D d, hn::Vec<D> (&row)[kRows]) {
  static_assert(sizeof(hn::TFromD<D>) == 4 && (kRows == 4 || kRows == 8 || kRows == 16));
#pragma GCC unroll 4
  for (int i = 0; i < kRows; i += 4) transpose_blocks(d, row + i);
  if constexpr (kRows == 8) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const auto low = hn::ConcatLowerLower(d, row[4 + j], row[j]);
      row[4 + j] = hn::ConcatUpperUpper(d, row[4 + j], row[j]);
      row[j] = low;
    }
  } else if constexpr (kRows == 16) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const auto even01 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(row[4 + j]), row[j]);
      const auto even23 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(row[12 + j]), row[8 + j]);
      const auto odd01 = hn::OddEvenBlocks(row[4 + j], hn::SwapAdjacentBlocks(row[j]));
      const auto odd23 = hn::OddEvenBlocks(row[12 + j], hn::SwapAdjacentBlocks(row[8 + j]));
      row[j] = hn::ConcatLowerLower(d, even23, even01);
      row[4 + j] = hn::ConcatLowerLower(d, odd23, odd01);
      row[8 + j] = hn::ConcatUpperUpper(d, even23, even01);
      row[12 + j] = hn::ConcatUpperUpper(d, odd23, odd01);
    }
  }
}

}  // namespace lamina::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
