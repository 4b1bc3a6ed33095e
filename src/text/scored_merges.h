#pragma once

#include <vector>

#include "lamina/text/spec.h"

namespace lamina::text {

/// Adds merges for files that list ranks of entries instead of merges. Two neighbors merge if together they are an
/// entry; the lowest rank goes first. So each cut of an entry into two other entries is a rule with its rank. `ranks`
/// is indexed by id. In a character-level vocabulary, cuts are between characters.
void add_merges_by_rank(TokenizerSpec& spec, const std::vector<int32_t>& ranks);

/// Converts scores (highest is best) to ranks (lowest is best).
std::vector<int32_t> ranks_of_scores(const std::vector<float>& scores);

}  // namespace lamina::text
