#pragma once

#include <functional>
#include <span>

#include "lamina/data/tasks/task.h"
#include "lamina/nn/model.h"
#include "lamina/text/tokenizer.h"

namespace lamina::lab {

/// Text for measuring perplexity at several lengths. Every length and method predicts the same tokens, ids[first …
/// first + count). There are enough tokens before `first` for the longest context.
struct ReadingText {
  std::vector<text::TokenId> ids;
  int64_t first = 0;
  int64_t count = 0;
};
/// Cuts the text to size, and rounds `count` to a multiple of `longest`. Throws an Error if the text is too short.
ReadingText reading_text(std::vector<text::TokenId> ids, int64_t longest, int64_t count);

/// Perplexity over non-overlapping windows. The first token of a window has no context, one in the middle half a
/// window.
double non_overlapping_perplexity(nn::Model& model, const ReadingText& text, int64_t length);
/// Perplexity over windows with a stride of a quarter of the length. Only the last quarter is scored, so each token has
/// at least three quarters of the length as context.
double sliding_perplexity(nn::Model& model, const ReadingText& text, int64_t length);

/// Creates passkey example number `index`, with the key at a relative depth from 0 (start) to 1 (end).
using PasskeyMaker = std::function<data::Example(int64_t length, double depth, uint64_t index)>;
PasskeyMaker task_passkeys(const data::Passkey& task);
/// Passkeys as text, for models with a tokenizer: filler sentences, one sentence with the key, and the question at the
/// end.
PasskeyMaker text_passkeys(const text::Tokenizer& tokenizer);

/// The share of `examples` in which every token of the key is the argmax. Greedy decoding would then produce the key.
double passkey_accuracy(nn::Model& model, const PasskeyMaker& make, int64_t length, double depth, int64_t examples);

}  // namespace lamina::lab
