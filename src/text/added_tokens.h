#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "lamina/text/spec.h"
#include "lamina/text/vocabulary.h"

namespace lamina::text {

/// Finds added tokens in text: the leftmost match, and among matches at one position the longest.
class AddedTokens {
 public:
  struct Match {
    const AddedToken* token = nullptr;  ///< null if nothing was found
    size_t begin = 0;
    size_t end = 0;
  };

  explicit AddedTokens(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }
  /// The first match at or after `from`, including the white space that it strips.
  Match find(std::string_view text, size_t from) const;

 private:
  std::vector<AddedToken> tokens_;
  Vocabulary index_;                              // content → index in tokens_
  std::array<std::vector<size_t>, 256> lengths_;  // by first byte: the lengths of the tokens, longest first
};

}  // namespace lamina::text
