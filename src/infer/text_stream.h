#pragma once

#include <string>
#include <vector>

#include "lamina/infer/stop_strings.h"
#include "lamina/text/tokenizer.h"

namespace lamina::infer {

/// The text of tokens as they come: whole characters only, and nothing of a stop string.
class TextStream {
 public:
  /// `tokenizer` must outlive the stream.
  explicit TextStream(const text::Tokenizer& tokenizer, std::vector<std::string> stops = {})
      : tokenizer_(tokenizer), stops_(std::move(stops)) {}

  /// What stands before the text, on which its first space may depend.
  void see_prompt(std::span<const text::TokenId> ids);
  /// What may be shown now that `id` has come.
  std::string push(text::TokenId id);
  /// Nothing more comes: what was held back, a broken character included.
  std::string finish();
  /// A stop string came.
  bool stopped() const { return stops_.stopped(); }

 private:
  /// What the tokens not shown yet add to those shown just before, without which some vocabularies misplace a space.
  std::string fresh() const;

  const text::Tokenizer& tokenizer_;
  StopStrings stops_;
  std::vector<text::TokenId> ids_;  ///< the tokens shown last, then those not shown yet
  size_t shown_ = 0;                ///< how many of them are shown
};

}  // namespace lamina::infer
