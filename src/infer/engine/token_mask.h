#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lamina/text/tokenizer.h"

namespace lamina::infer {

/// Restricts the tokens that may come next in an answer, for example by a grammar.
class TokenMask {
 public:
  virtual ~TokenMask() = default;

  /// Sets bit id % 32 of bits[id / 32] for every token that may come next, and clears all others. End-of-text tokens
  /// are allowed if and only if can_end().
  virtual void mask(std::span<uint32_t> bits) const = 0;
  /// Appends a token. Returns false, and changes nothing, if the token is not allowed.
  virtual bool accept(text::TokenId id) = 0;
  /// The only possible continuation, as tokens in order. Empty if there is a choice. Does not change the state.
  virtual std::vector<text::TokenId> forced() const = 0;
  /// Whether the answer may end here.
  virtual bool can_end() const = 0;
  /// An independent copy, for drafted tokens.
  virtual std::unique_ptr<TokenMask> clone() const = 0;
};

}  // namespace lamina::infer
