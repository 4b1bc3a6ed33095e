#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/byte_trie.h"
#include "lamina/text/piece_encoder.h"

namespace lamina::text {

/// WordPiece as in BERT (Devlin et al. 2019, arXiv:1810.04805): takes the longest entry at the start of the word, then
/// the longest continuation entry ("##") at the start of the rest, and so on. If no entry matches, or the word has more
/// than `longest_word` characters, the whole word is one unknown token.
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
  ByteTrie::Node continued_;  // node of the continuation mark; later matches start there
};

}  // namespace lamina::text
