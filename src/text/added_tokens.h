#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "lamina/text/spec.h"
#include "lamina/text/vocabulary.h"

namespace lamina::text {

/// Finds added tokens in a text: the leftmost match and, among several at the same position, the longest.
class AddedTokens {
 public:
  struct Match {
    const AddedToken* token = nullptr;  ///< null if nothing was found
    size_t begin = 0;
    size_t end = 0;
  };

  explicit AddedTokens(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }
  /// The first match at or after `from`. Includes the white space that the token strips.
  Match find(std::string_view text, size_t from) const;

 private:
  std::vector<AddedToken> tokens_;
  Vocabulary index_;                              // content → index in tokens_
  std::array<std::vector<size_t>, 256> lengths_;  // per first byte: the lengths of the tokens, longest first
};

}  // namespace lamina::text
