#include "lamina/infer/evaluate.h"

#include <algorithm>
#include <cmath>

#include "lamina/infer/knn.h"
#include "lamina/infer/windows.h"
#include "lamina/ops/loss/cross_entropy.h"

namespace lamina::infer {
namespace {

/// Number of positions whose logits are in memory at once.
constexpr int64_t kRowsAtOnce = 256;
/// Maximum number of tokens in a batch of windows.
constexpr int64_t kBatchTokens = 2048;

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

/// Sums up the losses of batches of windows.
class Evaluator {
 public:
  Evaluator(nn::Model& model, const EvaluateOptions& options) : model_(model), knn_(options.knn.get()) {
    for (size_t i = 0; i + 1 < options.lengths.size(); ++i) {
      LAMINA_CHECK(options.lengths[i] >= 0 && options.lengths[i] < options.lengths[i + 1],
                   "evaluate: the bounds of lengths must ascend from 0 on");
      result_.by_length.push_back({options.lengths[i], options.lengths[i + 1], 0, 0});
    }
  }

  void read(const WindowBatch& batch) {
    const auto all = static_cast<int64_t>(batch.targets.size());
    const Tensor wanted = Tensor::from(batch.targets, {all}, model_.device());
    for (int64_t at = 0; at < all; at += kRowsAtOnce) {
      const int64_t count = std::min(kRowsAtOnce, all - at);
      const Tensor states = batch.states.slice(0, at, count);
      std::vector<double> losses =
          ops::cross_entropy(model_.logits_of(states), wanted.slice(0, at, count), {.reduction = ops::Reduction::none})
              .to_vector<double>();
      if (knn_ != nullptr) add_neighbors(states, std::span(batch.targets).subspan(static_cast<size_t>(at)), losses);
      for (size_t i = 0; i < losses.size(); ++i) {
        const size_t row = static_cast<size_t>(at) + i;
        if (batch.is_counted(row)) count_token(batch.position(row) + 1, losses[i]);
      }
    }
  }

  Evaluation& result() { return result_; }

 private:
  /// Interpolates the model's probabilities with those of the neighbours.
  void add_neighbors(const Tensor& states, std::span<const int64_t> targets, std::vector<double>& losses) const {
    const auto predictions = knn_->predict(states.to_vector<float>(), model_.device().threads());
    for (size_t i = 0; i < losses.size(); ++i) {
      const KnnLm::Prediction& prediction = predictions[i];
      const double neighbors = prediction.probability(static_cast<text::TokenId>(targets[i]));
      losses[i] = -std::log((1 - prediction.lambda) * std::exp(-losses[i]) + prediction.lambda * neighbors);
    }
  }

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
  const KnnLm* knn_;
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

/// Neighbours of the chunks in windows of `length` tokens: [windows, chunks, neighbours, length]. Undefined if no chunk
/// is complete.
Tensor neighbours_of(const nn::Model& model, std::span<const text::TokenId> ids, std::span<const Window> windows,
                     const NeighboursOf& find) {
  LAMINA_CHECK(model.spec().retrieval, "evaluate: neighbours for an architecture without retrieval; leave them out");
  const arch::Retrieval& retrieval = *model.spec().retrieval;
  const int64_t chunks = windows[0].length / retrieval.chunk;
  if (chunks == 0) return {};
  std::vector<int64_t> all;
  for (const Window& window : windows) {
    for (int64_t c = 0; c < chunks; ++c) {
      const auto first = static_cast<size_t>(window.begin + c * retrieval.chunk);
      const std::vector<int64_t> found = find(ids.subspan(first, static_cast<size_t>(retrieval.chunk)));
      all.insert(all.end(), found.begin(), found.end());
    }
  }
  return Tensor::from(all, {static_cast<int64_t>(windows.size()), chunks, retrieval.neighbours, retrieval.length},
                      model.device());
}

}  // namespace

double Evaluation::perplexity() const { return std::exp(loss()); }
double Evaluation::bits_per_byte(int64_t bytes) const { return total / std::log(2.0) / static_cast<double>(bytes); }

void each_window_batch(nn::Model& model, std::span<const text::TokenId> ids, const EvaluateOptions& options,
                       const std::function<void(const WindowBatch&)>& take) {
  const int64_t context = options.context > 0 ? options.context : model.spec().context;
  const int64_t stride = options.stride > 0 ? options.stride : context;
  check(ids, model.spec().vocab_size, context, stride);
  const auto tokens = static_cast<int64_t>(ids.size());
  const std::vector<Window> windows = windows_of(tokens, context, stride);
  for (size_t at = 0; at < windows.size();) {
    const int64_t length = windows[at].length;
    size_t end = at + 1;
    while (end < windows.size() && windows[end].length == length &&
           static_cast<int64_t>(end - at + 1) * length <= kBatchTokens) {
      ++end;
    }
    WindowBatch batch{std::span(windows).subspan(at, end - at), {}, {}};
    std::vector<int64_t> inputs;
    for (const Window& window : batch.windows) {
      const auto begin = ids.begin() + window.begin;
      inputs.insert(inputs.end(), begin, begin + length);
      batch.targets.insert(batch.targets.end(), begin + 1, begin + 1 + length);
    }
    const auto rows = static_cast<int64_t>(batch.windows.size());
    nn::RunOptions run;
    if (options.neighbours) run.neighbours = neighbours_of(model, ids, batch.windows, options.neighbours);
    const Tensor hidden = model.hidden(Tensor::from(inputs, {rows, length}, model.device()), run);
    batch.states = hidden.reshape({rows * length, hidden.dim(2)});
    take(batch);
    at = end;
    const Window& last = batch.windows.back();
    if (options.progress) options.progress(last.begin + last.length, tokens - 1);
  }
}

Evaluation evaluate(nn::Model& model, std::span<const text::TokenId> ids, const EvaluateOptions& options) {
  Evaluator evaluator(model, options);
  each_window_batch(model, ids, options, [&](const WindowBatch& batch) { evaluator.read(batch); });
  for (LengthLoss& bucket : evaluator.result().by_length) {
    if (bucket.tokens > 0) bucket.loss /= static_cast<double>(bucket.tokens);
  }
  return evaluator.result();
}

}  // namespace lamina::infer
