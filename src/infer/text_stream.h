#pragma once

#include <string>
#include <vector>

#include "lamina/infer/stop_strings.h"
#include "lamina/text/stream_decoder.h"

namespace lamina::infer {

/// The text of tokens as they come: whole characters only, and nothing of a stop string.
class TextStream {
 public:
  /// `tokenizer` must outlive the stream.
  explicit TextStream(const text::Tokenizer& tokenizer, std::vector<std::string> stops = {})
      : decoder_(tokenizer), stops_(std::move(stops)) {}

  /// What stands before the text, on which its first space may depend.
  void see_prompt(std::span<const text::TokenId> ids);
  /// What may be shown now that `id` has come.
  std::string push(text::TokenId id);
  /// Nothing more comes: what was held back, a broken character included.
  std::string finish();
  /// A stop string came.
  bool stopped() const { return stops_.stopped(); }

 private:
  text::StreamDecoder decoder_;
  StopStrings stops_;
};

}  // namespace lamina::infer
