#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

/// The vocabulary of a tokenizer as a trie over bytes, for token masks. Built once per tokenizer, in a few milliseconds
/// per 10,000 tokens. Immutable.
class VocabularyIndex {
 public:
  /// Special tokens other than `end_tokens` are never allowed. `end_tokens` empty: the tokenizer's EOS. `size` is the
  /// number of logits, if the model's vocabulary is padded; 0: the tokenizer's size.
  explicit VocabularyIndex(const Tokenizer& tokenizer, std::vector<TokenId> end_tokens = {}, int64_t size = 0);
  /// `bytes[id]` are the bytes of a token. A token without bytes is never allowed.
  VocabularyIndex(std::vector<std::string> bytes, std::vector<TokenId> end_tokens);

  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  /// Number of 32-bit words in a mask.
  size_t words() const { return (bytes_.size() + 31) / 32; }
  std::string_view bytes(TokenId id) const { return bytes_[static_cast<size_t>(id)]; }
  const std::vector<TokenId>& end_tokens() const { return end_tokens_; }
  bool is_end(TokenId id) const;

  /// Trie nodes, in depth-first order. Node 0 is the root.
  struct Node {
    uint32_t end = 0;    ///< index after the last node of this subtree
    uint32_t token = 0;  ///< first index in tokens() of the tokens that end here; they extend to the next node's
    uint16_t depth = 0;
    uint8_t byte = 0;
  };
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  /// The node with these bytes. 0 if there is none.
  uint32_t find(std::string_view bytes) const;

 private:
  void build();

  std::vector<std::string> bytes_;
  std::vector<TokenId> end_tokens_;
  std::vector<Node> nodes_;  // with an extra node at the end, so that every node has a successor
  std::vector<TokenId> tokens_;
};

}  // namespace lamina::text
