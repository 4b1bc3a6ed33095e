#pragma once

#include <optional>
#include <string>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

/// Decodes tokens one by one, for text that appears while it is generated. The concatenated results of push() and
/// finish() are decode() of the tokens, without the special ones unless they are asked for.
/// Models with a padded vocabulary have ids that no tokenizer entry stands for. They give no text, or "<ID>" with
/// `special`.
class StreamDecoder {
 public:
  /// The tokenizer must outlive the decoder. With `special`, special tokens appear by name; otherwise they give no
  /// text.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool special = false);

  /// Sets the token before the first one: it may decide whether the first word begins with a space.
  void follow(TokenId id);
  /// The text that no later token can change: a character whose bytes come in several tokens is held back until it is
  /// whole. May be empty.
  std::string push(TokenId id);
  /// Returns the bytes held back, complete or not, and resets the decoder.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool special_;
  std::optional<TokenId> last_;
  std::string held_;
};

}  // namespace lamina::text
