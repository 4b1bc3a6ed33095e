#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lamina/text/spec.h"

namespace lamina::text {

/// A distinct piece of training text and how often it occurs.
using CountedWord = std::pair<std::string, int64_t>;

/// Normalizes, splits and prefixes each line as a tokenizer of this spec would, and counts the distinct pieces, in
/// order of first occurrence. Pieces that are not UTF-8 are left out.
std::vector<CountedWord> count_pieces(const std::vector<std::string_view>& corpora, const TokenizerSpec& spec);

}  // namespace lamina::text
