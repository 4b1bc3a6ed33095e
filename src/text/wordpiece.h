#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/byte_trie.h"
#include "lamina/text/piece_encoder.h"

namespace lamina::text {

/// WordPiece as in BERT (Devlin et al. 2019, arXiv:1810.04805): takes the longest entry that the word begins with, then
/// the longest entry marked as a continuation ("##") for the rest, and so on. A word with a rest that no entry begins,
/// or with more than `longest_word` characters, is one unknown token.
class WordPiece : public PieceEncoder {
 public:
  WordPiece(const TokenizerSpec& spec, const std::string& name);

  void encode(std::string_view word, std::vector<TokenId>& ids, UnknownCharacters* unknown) const override;
  TokenId find(std::string_view entry) const override { return entries_.find(entry); }

 private:
  std::string name_;
  std::optional<TokenId> unknown_;
  size_t longest_word_;
  ByteTrie entries_;
  ByteTrie::Node continued_;  // node of the continuation mark: the start of each later match
};

}  // namespace lamina::text
