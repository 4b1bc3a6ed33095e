#pragma once

#include <optional>
#include <string>

#include "lamina/lab/study.h"

namespace lamina::lab {

/// What matching changed.
struct Adjustment {
  std::string field;  ///< d_ff or d_model
  int64_t from = 0;
  int64_t to = 0;
  double difference = 0;  ///< what remains, relative to the size wanted
};

/// What a resolved architecture is matched by: its parameters, or the operations of a token in a forward pass over
/// sequences of this length.
double matched_size(const arch::ArchSpec& resolved, Matching matching, int64_t length);

struct Matched {
  arch::ArchSpec spec;  ///< resolved
  std::optional<Adjustment> adjusted;
};
/// The architecture, not resolved but with its vocabulary, at the size wanted: the widths of its feed-forwards change,
/// in steps of 8 and in proportion to one another; where it has none, or they cannot bring it within 2 %, its width
/// does, in steps that leave heads whole and of even width. As it is where it has that size or nothing comes nearer.
Matched match(const arch::ArchSpec& spec, double wanted, Matching matching, int64_t length);

}  // namespace lamina::lab
