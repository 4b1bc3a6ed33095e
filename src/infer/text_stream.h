#pragma once

#include <string>
#include <vector>

#include "lamina/infer/stop_strings.h"
#include "lamina/text/stream_decoder.h"

namespace lamina::infer {

/// Converts tokens to text during generation. Returns only complete characters and no part of a stop string.
class TextStream {
 public:
  /// `tokenizer` must outlive the stream. `special`: see text::StreamDecoder.
  explicit TextStream(const text::Tokenizer& tokenizer, std::vector<std::string> stops = {}, bool special = false)
      : decoder_(tokenizer, special), stops_(std::move(stops)) {}

  /// Sets the tokens before the text. The last one may determine whether the text begins with a space.
  void see_prompt(std::span<const text::TokenId> ids);
  /// Adds a token. Returns the text that is final now.
  std::string push(text::TokenId id);
  /// Ends the stream. Returns the text that was held back, including an incomplete character.
  std::string finish();
  /// Whether a stop string was generated.
  bool stopped() const { return stops_.stopped(); }

 private:
  text::StreamDecoder decoder_;
  StopStrings stops_;
};

}  // namespace lamina::infer
