#pragma once

// Dropout's draws as AttentionOptions defines them, for kernels on every device.

#include <algorithm>
#include <cmath>

#include "lamina/base/philox.h"

namespace lamina::ops {

/// Rounds before the upper and before the lower bits of numbers are taken.
constexpr int kDropoutRounds = 7;
constexpr int kDropoutLowRounds = 9;
constexpr int kDropoutBits = 16;

/// t of AttentionOptions::dropout; 0: nothing is dropped.
inline uint32_t attention_dropout_threshold(double probability) {
  return std::min(static_cast<uint32_t>(std::lround(probability * 65536.0)), 65535U);
}
/// What weights that stay are multiplied by.
constexpr double attention_dropout_factor(uint32_t threshold) { return 65536.0 / (65536.0 - threshold); }

/// The patch that a query or a key lies in, along its side.
template <class I>
constexpr I dropout_patch(I position) {
  return position / 16 * 4 + position / 2 % 4;
}
/// Which of the patch's weights is that of a query and a key.
template <class I>
constexpr I weight_in_patch(I query, I key) {
  return query % 2 * 8 + key / 8 % 2 * 4 + query / 8 % 2 * 2 + key % 2;
}
/// Rows of patches of one head.
constexpr int64_t dropout_patches(int64_t seq_q) { return (seq_q + 15) / 16 * 4; }

/// A threshold's bits from the lowest on, all ones where a bit is 0.
using DropoutPlanes = std::array<uint32_t, kDropoutBits>;

constexpr DropoutPlanes dropout_planes(uint32_t threshold) {
  DropoutPlanes planes{};
  for (size_t i = 0; i < kDropoutBits; ++i) planes[i] = (threshold >> i & 1) != 0 ? 0U : ~0U;
  return planes;
}

/// Which of a patch's weights stay: bit e for weight e, nothing of meaning above 16 of them. The numbers are compared
/// with the threshold bit by bit from the lowest on: where it has a 1 a number stays at least as great only with a 1,
/// where it has a 0 it becomes greater by a 1. `row` counts the rows of all heads, modulo 2³² as counters have it.
constexpr uint32_t kept_of_patch(const PhiloxKeys& keys, uint64_t stream, uint32_t row, uint32_t column,
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
