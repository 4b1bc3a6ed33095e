#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lamina::text {

/// The long lists of a tokenizer.json, read without building a JSON tree. They are most of the file; building the tree
/// for a vocabulary of 128k tokens would take most of a second.
struct JsonLists {
  std::vector<std::pair<std::string, int64_t>> vocab;
  std::vector<std::pair<std::string, double>> scored;  ///< vocabulary of a Unigram model by id: tokens and scores
  std::vector<std::pair<std::string, std::string>> merges;
  std::string rest;  ///< the document with null instead of the lists, and unchanged line numbers
};
/// Extracts the lists. Malformed lists are an Error. The rest of the document is not validated.
JsonLists take_lists(std::string_view text, const std::string& name);

}  // namespace lamina::text
