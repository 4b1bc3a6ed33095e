#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "lamina/text/spec.h"
#include "lamina/text/vocabulary.h"

namespace lamina::text {

/// Finds added tokens in text: the leftmost first, of those that begin at one place the longest.
class AddedTokens {
 public:
  struct Match {
    const AddedToken* token = nullptr;  ///< none where nothing was found
    size_t begin = 0;
    size_t end = 0;
  };

  explicit AddedTokens(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }
  /// The first at or behind `from`, with the white space that it takes along.
  Match find(std::string_view text, size_t from) const;

 private:
  std::vector<AddedToken> tokens_;
  Vocabulary index_;                              // content to the place in tokens_
  std::array<std::vector<size_t>, 256> lengths_;  // of those that begin with a byte, the longest first
};

}  // namespace lamina::text
