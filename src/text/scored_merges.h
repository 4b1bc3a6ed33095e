#pragma once

#include <vector>

#include "lamina/text/spec.h"

namespace lamina::text {

/// Adds merges for files that list ranks of entries instead of merges. Two neighbors merge if their concatenation is an
/// entry; the lowest rank goes first. So each division of an entry into two other entries becomes a merge with the
/// entry's rank. `ranks` is indexed by id. In a character-level vocabulary, entries are divided between characters.
void add_merges_by_rank(TokenizerSpec& spec, const std::vector<int32_t>& ranks);

/// Converts scores (higher is better) to ranks (lower is better).
std::vector<int32_t> ranks_of_scores(const std::vector<float>& scores);

}  // namespace lamina::text
