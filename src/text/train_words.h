#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lamina/text/spec.h"

namespace lamina::text {

/// A distinct piece of training text, and its number of occurrences.
using CountedWord = std::pair<std::string, int64_t>;

/// Normalizes and splits each line, and adds prefixes, as a tokenizer with this spec would. Counts the distinct pieces,
/// in order of first occurrence. Skips pieces that are not UTF-8.
std::vector<CountedWord> count_pieces(const std::vector<std::string_view>& corpora, const TokenizerSpec& spec);

}  // namespace lamina::text
