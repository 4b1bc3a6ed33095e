#pragma once

// The dropout mask that AttentionOptions::dropout defines, for kernels on every device.

#include <algorithm>
#include <cmath>

#include "lamina/base/philox.h"

namespace lamina::ops {

/// Philox rounds after which the upper and the lower bits are taken.
constexpr int kDropoutRounds = 7;
constexpr int kDropoutLowRounds = 9;
constexpr int kDropoutBits = 16;

/// The threshold t of AttentionOptions::dropout; 0: no dropout.
inline uint32_t attention_dropout_threshold(double probability) {
  return std::min(static_cast<uint32_t>(std::lround(probability * 65536.0)), 65535U);
}
/// The scale of kept weights.
constexpr double attention_dropout_factor(uint32_t threshold) { return 65536.0 / (65536.0 - threshold); }

/// Patch row of a query, or patch column of a key.
template <class I>
constexpr I dropout_patch(I position) {
  return position / 16 * 4 + position / 2 % 4;
}
/// Index of a (query, key) weight within its patch.
template <class I>
constexpr I weight_in_patch(I query, I key) {
  return query % 2 * 8 + key / 8 % 2 * 4 + query / 8 % 2 * 2 + key % 2;
}
/// Number of patch rows per head.
constexpr int64_t dropout_patches(int64_t seq_q) { return (seq_q + 15) / 16 * 4; }

/// Inverted bit planes of the threshold, lowest first: all ones if the bit is 0.
using DropoutPlanes = std::array<uint32_t, kDropoutBits>;

constexpr DropoutPlanes dropout_planes(uint32_t threshold) {
  DropoutPlanes planes{};
  for (size_t i = 0; i < kDropoutBits; ++i) planes[i] = (threshold >> i & 1) != 0 ? 0U : ~0U;
  return planes;
}

/// Which weights of a patch are kept: bit e is 1 if weight e is kept; bits from 16 on are undefined. Compares the 16
/// numbers with the threshold at once, bit-sliced, from the lowest bit: after each bit, `kept` says which numbers are
/// >= the threshold so far. If the threshold's bit is 1, a number stays >= only with a 1; if it is 0, a 1 makes it
/// greater. `row` counts patch rows over all heads, modulo 2³² like the counter.
constexpr uint32_t dropout_patch_mask(const PhiloxKeys& keys, uint64_t stream, uint32_t row, uint32_t column,
                                      const DropoutPlanes& planes) {
  const PhiloxWords high = philox<kDropoutRounds>(keys, stream, uint64_t{row} << 32 | column);
  const PhiloxWords low = philox_rounds<kDropoutRounds, kDropoutLowRounds>(keys, high);
  uint32_t kept = ~0U;
  for (size_t i = 0; i < kDropoutBits; ++i) {
    if (i == 4) kept <<= 16;
    if (i == 12) kept >>= 16;
    const uint32_t word = i < 8 ? low[i % 4] : high[i % 4];
    kept = (kept & word) | (planes[i] & (kept | word));
  }
  return kept;
}

}  // namespace lamina::ops
