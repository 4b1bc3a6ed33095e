#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lamina/text/grammar/grammar.h"
#include "lamina/text/grammar/vocabulary_index.h"

namespace lamina::text {

/// A grammar bound to a vocabulary. Computes token masks and caches them, so create one per grammar and share it
/// between requests. Threads may use it at the same time; calls are serialized.
class TokenGrammar {
 public:
  /// Binds `grammar` to the tokens of `vocabulary`.
  TokenGrammar(Grammar grammar, std::shared_ptr<const VocabularyIndex> vocabulary);
  ~TokenGrammar();
  TokenGrammar(const TokenGrammar&) = delete;
  TokenGrammar& operator=(const TokenGrammar&) = delete;

  const VocabularyIndex& vocabulary() const;  ///< the tokens
  /// Computes the masks that will probably be needed, so that the first tokens do not wait for them. `work` bounds the
  /// effort; the default takes about 10 ms.
  void prepare(uint64_t work = 2'000'000);
  /// Approximate memory in bytes. Grows while the grammar is used.
  size_t bytes() const;

 private:
  friend class GrammarState;
  struct Data;
  std::unique_ptr<Data> data_;
};

/// A position in a text that a grammar constrains: determines which tokens may come next. Cheap to copy, which is how a
/// caller rolls back or tries a continuation.
class GrammarState {
 public:
  /// The start of a text.
  explicit GrammarState(std::shared_ptr<TokenGrammar> grammar);

  /// Fills vocabulary().words() words: bit id % 32 of word id / 32 is 1 if the token may come next. End tokens are
  /// allowed if and only if can_end(). No bit is set if no token fits: the vocabulary lacks a needed byte, or the text
  /// has ended.
  void mask(std::span<uint32_t> words) const;
  /// Whether the token may come next.
  bool allows(TokenId token) const;
  /// Advances by a token. Returns false, and changes nothing, if it is not allowed.
  bool accept(TokenId token);
  /// Advances by bytes. Returns false, and changes nothing, if they are not allowed.
  bool accept_bytes(std::string_view bytes);
  /// Whether the text so far is complete.
  bool can_end() const { return can_end_; }
  /// Whether an end token was accepted.
  bool ended() const { return ended_; }

  /// The bytes of the only possible continuation, at most `limit` of them. Empty if there is a choice.
  std::string forced_bytes(size_t limit = 1024) const;
  /// The forced bytes as tokens, encoded as the tokenizer would, which can be appended without running the model. The
  /// last tokens are left out if a token of the free text after them could reach back into the forced bytes. Empty if
  /// nothing is forced, or if the tokenizer changes the bytes (for example, puts a space before them).
  std::vector<TokenId> forced_tokens(const Tokenizer& tokenizer) const;

  const TokenGrammar& grammar() const { return *grammar_; }  ///< shared by copies of this state

 private:
  struct Stacks;
  struct Position {
    uint32_t state = 0;
    uint32_t frame = 0;
  };
  bool advance(std::string_view bytes);

  std::shared_ptr<TokenGrammar> grammar_;
  std::shared_ptr<Stacks> stacks_;  // shared by copies of this state; only grows
  std::vector<Position> positions_;
  bool can_end_ = false;
  bool ended_ = false;
};

}  // namespace lamina::text
