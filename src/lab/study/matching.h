#pragma once

#include <optional>
#include <string>

#include "lamina/lab/study/study.h"

namespace lamina::lab {

/// Sizes that differ by at most this share count as equal.
inline constexpr double kEqualSize = 0.02;

/// A change made by matching.
struct Adjustment {
  std::string field;  ///< "d_ff" or "d_model"
  int64_t from = 0;
  int64_t to = 0;
  double difference = 0;  ///< remaining difference, relative to the target size
};

/// The size by which variants are matched: parameters, or forward FLOPs per token at this sequence length.
double matched_size(const arch::ArchSpec& resolved, Matching matching, int64_t length);

/// An architecture after matching, and the changes made.
struct Matched {
  arch::ArchSpec spec;  ///< resolved
  std::optional<Adjustment> adjusted;
};
/// Adjusts an unresolved architecture (with its vocabulary) to the target size. First scales all d_ff by the same
/// factor, in steps of 8. If there is no d_ff, or the result is more than 2 % off, changes d_model, in steps that keep
/// whole heads of even width. Returns the architecture unchanged if it has that size, or if no change comes closer.
Matched match(const arch::ArchSpec& spec, double wanted, Matching matching, int64_t length);

}  // namespace lamina::lab
