#pragma once

#include <optional>
#include <string>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

/// Decodes tokens one by one, to show text while it is generated. The results of push() and finish() together equal
/// decode() of the tokens, without special tokens unless `special`. Models with a padded vocabulary have ids without a
/// tokenizer entry: these give no text or, with `special`, "<ID>".
class StreamDecoder {
 public:
  /// The tokenizer must outlive the decoder. With `special`, special tokens give their names; otherwise they give no
  /// text.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool special = false);

  /// Sets the token before the first one. It may determine whether the first word begins with a space.
  void follow(TokenId id);
  /// Adds a token. Returns the text that no later token can change, which may be empty. A character whose bytes span
  /// several tokens is held back until it is complete.
  std::string push(TokenId id);
  /// Returns the bytes that were held back, even if incomplete, and resets the decoder.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool special_;
  std::optional<TokenId> last_;
  std::string held_;
};

}  // namespace lamina::text
