#pragma once

#include <optional>
#include <string>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

/// Decodes tokens one by one, for text that appears while it is generated. What push() and finish() give, put together,
/// is decode() of the tokens, but for special ones unless asked for.
class StreamDecoder {
 public:
  /// The tokenizer must outlive it. With `special`, special tokens appear by name; without, they leave no text.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool special = false);

  /// The token before the first one: whether a word begins with a space may depend on it.
  void follow(TokenId id) { last_ = id; }
  /// The text that no later token can change: a character whose bytes come in several tokens is held back until it is
  /// whole. May be empty.
  std::string push(TokenId id);
  /// What was held back, as it is; then begins anew.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool special_;
  std::optional<TokenId> last_;
  std::string held_;
};

}  // namespace lamina::text
