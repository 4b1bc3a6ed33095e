#pragma once

#include <optional>
#include <string>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

/// Decodes tokens one by one, for text that is shown while it is generated. The concatenated results of push() and
/// finish() equal decode() of the tokens, without special tokens unless `special`. Models with a padded vocabulary have
/// ids without a tokenizer entry. They give no text, or "<ID>" with `special`.
class StreamDecoder {
 public:
  /// The tokenizer must outlive the decoder. With `special`, special tokens appear by name; otherwise they give no
  /// text.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool special = false);

  /// Sets the token before the first one, which may decide whether the first word begins with a space.
  void follow(TokenId id);
  /// Returns the text that no later token can change; may be empty. A character whose bytes span several tokens is held
  /// back until it is complete.
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
