#pragma once

#include <functional>
#include <span>

#include "lamina/data/tasks/task.h"
#include "lamina/nn/model.h"
#include "lamina/text/tokenizer.h"

namespace lamina::lab {

/// Text for perplexity at several lengths. Every length and method predicts the same tokens, ids[first … first +
/// count). Enough tokens precede `first` for the longest context.
struct ReadingText {
  std::vector<text::TokenId> ids;
  int64_t first = 0;
  int64_t count = 0;
};
/// Cuts the text and rounds `count` to a multiple of `longest`. Throws Error if the text is too short.
ReadingText reading_text(std::vector<text::TokenId> ids, int64_t longest, int64_t count);

/// Perplexity over non-overlapping windows. The first token of a window has no context, a middle one half a window.
double non_overlapping_perplexity(nn::Model& model, const ReadingText& text, int64_t length);
/// Perplexity over windows with a stride of a quarter length. Only the last quarter is scored, so each token has at
/// least three quarters of the length as context.
double sliding_perplexity(nn::Model& model, const ReadingText& text, int64_t length);

/// Makes passkey example `index` with the key at relative depth 0 (start) to 1 (end).
using PasskeyMaker = std::function<data::Example(int64_t length, double depth, uint64_t index)>;
PasskeyMaker task_passkeys(const data::Passkey& task);
/// Passkeys as text, for models with a tokenizer: filler sentences, one sentence with the key, the question at the end.
PasskeyMaker text_passkeys(const text::Tokenizer& tokenizer);

/// Share of `examples` in which every token of the key is the argmax, so that greedy decoding would produce it.
double passkey_accuracy(nn::Model& model, const PasskeyMaker& make, int64_t length, double depth, int64_t examples);

}  // namespace lamina::lab
