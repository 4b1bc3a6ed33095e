#pragma once

#include <vector>

#include "lamina/text/spec.h"

namespace lamina::text {

/// Files that list no merges but a rank for every entry: two neighbours merge where together they are an entry, the
/// better rank first. So each way to cut an entry into two others is a rule of its rank. `ranks` by id, the lowest
/// best. With characters, cuts are between them.
void add_merges_by_rank(TokenizerSpec& spec, const std::vector<int32_t>& ranks);

/// Ranks from scores, of which the highest is best.
std::vector<int32_t> ranks_of_scores(const std::vector<float>& scores);

}  // namespace lamina::text
