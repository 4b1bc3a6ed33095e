#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lamina::text {

/// The two long lists of a tokenizer.json, read without a tree: that is most of the file, and the tree of a vocabulary
/// of 128k tokens alone would take most of a second.
struct JsonLists {
  std::vector<std::pair<std::string, int64_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;
  std::string rest;  ///< the document with null in their place, on the same lines
};
/// Errors where the lists are not as they should be; the rest is not looked at beyond finding them.
JsonLists take_lists(std::string_view text, const std::string& name);

}  // namespace lamina::text
