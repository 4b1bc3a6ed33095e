#include "lamina/infer/evaluate.h"

#include <algorithm>
#include <cmath>

#include "lamina/ops/loss/cross_entropy.h"

namespace lamina::infer {
namespace {

/// Number of positions whose logits are in memory at a time.
constexpr int64_t kRowsAtOnce = 256;
/// Maximum number of tokens in a batch of windows.
constexpr int64_t kBatchTokens = 2048;

/// Reads ids[begin, begin + length). Only predictions at positions ≥ `first` count.
struct Window {
  int64_t begin;
  int64_t length;
  int64_t first;
};

std::vector<Window> windows_of(int64_t tokens, int64_t context, int64_t stride) {
  std::vector<Window> windows;
  int64_t counted = 1;  // the first token is never predicted
  for (int64_t begin = 0; counted < tokens; begin += stride) {
    const int64_t length = std::min(context, tokens - 1 - begin);
    windows.push_back({begin, length, counted - begin - 1});
    counted = begin + length + 1;
  }
  return windows;
}

class Evaluator {
 public:
  Evaluator(nn::Model& model, std::span<const text::TokenId> ids, const EvaluateOptions& options)
      : model_(model), ids_(ids) {
    for (size_t i = 0; i + 1 < options.lengths.size(); ++i) {
      LAMINA_CHECK(options.lengths[i] >= 0 && options.lengths[i] < options.lengths[i + 1],
                   "evaluate: the bounds of lengths must ascend from 0 on");
      result_.by_length.push_back({options.lengths[i], options.lengths[i + 1], 0, 0});
    }
  }

  /// Evaluates windows of equal length.
  void read(std::span<const Window> windows) {
    const auto batch = static_cast<int64_t>(windows.size());
    const int64_t length = windows[0].length;
    std::vector<int64_t> inputs;
    std::vector<int64_t> targets;
    for (const Window& window : windows) {
      const auto begin = ids_.begin() + window.begin;
      inputs.insert(inputs.end(), begin, begin + length);
      targets.insert(targets.end(), begin + 1, begin + 1 + length);
    }
    const Device& device = model_.device();
    const Tensor hidden = model_.hidden(Tensor::from(inputs, {batch, length}, device));
    const Tensor rows = hidden.reshape({batch * length, hidden.dim(2)});
    const Tensor wanted = Tensor::from(targets, {batch * length}, device);
    for (int64_t at = 0; at < batch * length; at += kRowsAtOnce) {
      const int64_t count = std::min(kRowsAtOnce, batch * length - at);
      const Tensor logits = model_.logits_of(rows.slice(0, at, count));
      const auto losses = ops::cross_entropy(logits, wanted.slice(0, at, count), {.reduction = ops::Reduction::none})
                              .to_vector<double>();
      for (int64_t i = 0; i < count; ++i) {
        const int64_t position = (at + i) % length;
        if (position < windows[static_cast<size_t>((at + i) / length)].first) continue;
        count_token(position + 1, losses[static_cast<size_t>(i)]);
      }
    }
  }

  Evaluation& result() { return result_; }

 private:
  void count_token(int64_t before, double loss) {
    result_.total += loss;
    ++result_.tokens;
    for (LengthLoss& bucket : result_.by_length) {
      if (before < bucket.begin || before >= bucket.end) continue;
      bucket.loss += loss;
      ++bucket.tokens;
    }
  }

  nn::Model& model_;
  std::span<const text::TokenId> ids_;
  Evaluation result_;
};

void check(std::span<const text::TokenId> ids, int64_t vocab, int64_t context, int64_t stride) {
  LAMINA_CHECK(ids.size() >= 2, "evaluate: ", ids.size(), " tokens; expected at least two, one to predict");
  LAMINA_CHECK(context > 0 && stride > 0 && stride <= context, "evaluate: a stride of ", stride, " for a context of ",
               context, "; expected 1 up to the context");
  for (const text::TokenId id : ids) {
    LAMINA_CHECK(id >= 0 && id < vocab, "evaluate: the data hold token ", id, ", the model has ", vocab,
                 "; give data of the tokenizer that the model was trained with");
  }
}

}  // namespace

double Evaluation::perplexity() const { return std::exp(loss()); }
double Evaluation::bits_per_byte(int64_t bytes) const { return total / std::log(2.0) / static_cast<double>(bytes); }

Evaluation evaluate(nn::Model& model, std::span<const text::TokenId> ids, const EvaluateOptions& options) {
  const int64_t context = options.context > 0 ? options.context : model.spec().context;
  const int64_t stride = options.stride > 0 ? options.stride : context;
  check(ids, model.spec().vocab_size, context, stride);
  const auto tokens = static_cast<int64_t>(ids.size());
  const std::vector<Window> windows = windows_of(tokens, context, stride);
  Evaluator evaluator(model, ids, options);
  for (size_t at = 0; at < windows.size();) {
    const int64_t length = windows[at].length;
    size_t end = at + 1;
    while (end < windows.size() && windows[end].length == length &&
           static_cast<int64_t>(end - at + 1) * length <= kBatchTokens) {
      ++end;
    }
    evaluator.read(std::span(windows).subspan(at, end - at));
    at = end;
    if (options.progress) options.progress(evaluator.result().tokens, tokens - 1);
  }
  for (LengthLoss& bucket : evaluator.result().by_length) {
    if (bucket.tokens > 0) bucket.loss /= static_cast<double>(bucket.tokens);
  }
  return evaluator.result();
}

}  // namespace lamina::infer
