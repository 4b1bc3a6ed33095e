#pragma once

#include <functional>
#include <span>

#include "lamina/data/tasks/task.h"
#include "lamina/nn/model.h"
#include "lamina/text/tokenizer.h"

namespace lamina::lab {

/// A text in which the same tokens are predicted at every length and in both readings: ids[first … first + count).
/// Before `first` there is room for the longest context.
struct ReadingText {
  std::vector<text::TokenId> ids;
  int64_t first = 0;
  int64_t count = 0;
};
/// The text's beginning, with room for `longest`; `count` becomes a multiple of it. Too short a text is an Error.
ReadingText reading_text(std::vector<text::TokenId> ids, int64_t longest, int64_t count);

/// Windows of `length` side by side: a token in the middle of a window has half of it before it, the first none.
double side_by_side_perplexity(nn::Model& model, const ReadingText& text, int64_t length);
/// Windows that move on by a quarter, of which the last quarter counts: each token has three quarters of the length
/// before it or more.
double sliding_perplexity(nn::Model& model, const ReadingText& text, int64_t length);

/// Makes the passkey row number `index` with the key at a depth of 0 (at the start) … 1.
using PasskeyMaker = std::function<data::Example(int64_t length, double depth, uint64_t index)>;
PasskeyMaker task_passkeys(const data::Passkey& task);
/// In words, for models that read text: sentences that say nothing, one with the key, the question at the end.
PasskeyMaker text_passkeys(const text::Tokenizer& tokenizer);

/// The share of `examples` in which every token of the key is the likeliest: greedy generation would give it.
double passkey_accuracy(nn::Model& model, const PasskeyMaker& make, int64_t length, double depth, int64_t examples);

}  // namespace lamina::lab
