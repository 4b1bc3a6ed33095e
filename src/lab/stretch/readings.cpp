#include "lamina/lab/stretch/readings.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "lamina/base/error.h"
#include "lamina/infer/evaluate.h"
#include "lamina/train/evaluation.h"

namespace lamina::lab {
namespace {

/// Number of tokens in a batch of passkey examples.
constexpr int64_t kBatchTokens = 2048;
constexpr uint64_t kPasskeyStream = 0x64657074'00000000;  // ASCII "dept"

std::span<const text::TokenId> part(const ReadingText& text, int64_t begin, int64_t count) {
  return std::span(text.ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
}

/// An example of `tokens` in which the last `answer` tokens are scored.
data::Example scored_at_the_end(std::vector<int64_t> tokens, size_t answer) {
  data::Example example;
  for (size_t i = 0; i < tokens.size(); ++i) {
    i + answer < tokens.size() ? example.add(tokens[i]) : example.ask(tokens[i]);
  }
  return example;
}

class TextPasskeys {
 public:
  explicit TextPasskeys(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  data::Example operator()(int64_t length, double depth, uint64_t index) const {
    const std::string key = std::to_string(10000 + data::drawn_below(90000, {0, kPasskeyStream}, index));
    const auto needle = tokenizer_.encode("The pass key is " + key + ". Remember it. " + key + " is the pass key. ");
    const auto filler =
        tokenizer_.encode("The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. ");
    const auto question = tokenizer_.encode("What is the pass key? The pass key is");
    const auto answer = tokenizer_.encode(" " + key);
    const int64_t start = tokenizer_.bos() ? 1 : 0;
    const int64_t room = length + 1 - start - static_cast<int64_t>(needle.size() + question.size() + answer.size());
    LAMINA_CHECK(room >= 0, "the passkey question does not fit into ", length, " tokens; it needs ", length - room);
    const auto before = static_cast<int64_t>(std::lround(depth * static_cast<double>(room)));
    std::vector<int64_t> tokens;
    if (tokenizer_.bos()) tokens.push_back(*tokenizer_.bos());
    const auto fill = [&](int64_t count) {
      for (int64_t i = 0; i < count; ++i) tokens.push_back(filler[static_cast<size_t>(i) % filler.size()]);
    };
    fill(before);
    tokens.insert(tokens.end(), needle.begin(), needle.end());
    fill(room - before);
    tokens.insert(tokens.end(), question.begin(), question.end());
    tokens.insert(tokens.end(), answer.begin(), answer.end());
    return scored_at_the_end(std::move(tokens), answer.size());
  }

 private:
  const text::Tokenizer& tokenizer_;
};

}  // namespace

ReadingText reading_text(std::vector<text::TokenId> ids, int64_t longest, int64_t count) {
  ReadingText text;
  text.first = longest;
  text.count = std::max<int64_t>(1, count / longest) * longest;
  const auto needed = static_cast<size_t>(text.first + text.count);
  LAMINA_CHECK(ids.size() >= needed, "the text to measure on has ", ids.size(), " tokens; predicting ", text.count,
               " with a context of ", longest, " needs ", needed,
               "; give a longer text, fewer tokens (--tokens) or shorter lengths (--times)");
  ids.resize(needed);
  text.ids = std::move(ids);
  return text;
}

double non_overlapping_perplexity(nn::Model& model, const ReadingText& text, int64_t length) {
  return infer::evaluate(model, part(text, text.first - 1, text.count + 1), {.context = length}).perplexity();
}

double sliding_perplexity(nn::Model& model, const ReadingText& text, int64_t length) {
  const int64_t stride = std::max<int64_t>(1, length / 4);
  const int64_t before = length - stride;
  // Scores only tokens with at least `before` tokens of context, which are exactly those from `first` on.
  const infer::Evaluation result =
      infer::evaluate(model, part(text, text.first - before, before + text.count),
                      {.context = length, .stride = stride, .lengths = {before, length + 1}});
  return std::exp(result.by_length.at(0).loss);
}

PasskeyMaker task_passkeys(const data::Passkey& task) {
  return [task](int64_t length, double depth, uint64_t index) {
    data::check_task(task, length);
    data::Dice dice({0, kPasskeyStream + index});
    return task.make_at(dice, length, std::lround(depth * static_cast<double>(task.room(length))));
  };
}

PasskeyMaker text_passkeys(const text::Tokenizer& tokenizer) { return TextPasskeys(tokenizer); }

double passkey_accuracy(nn::Model& model, const PasskeyMaker& make, int64_t length, double depth, int64_t examples) {
  const int64_t rows = std::max<int64_t>(1, kBatchTokens / length);
  train::Tally tally;
  for (int64_t first = 0; first < examples; first += rows) {
    std::vector<data::Example> batch;
    for (int64_t i = first; i < std::min(first + rows, examples); ++i) {
      batch.push_back(make(length, depth, static_cast<uint64_t>(i)));
    }
    tally.add(model, data::batch_of(batch), /*accuracy=*/true);
  }
  return tally.result().accuracy->examples;
}

}  // namespace lamina::lab
