#include "lamina/infer/inspect.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "lamina/arch/layers.h"
#include "lamina/nn/forward_observer.h"

namespace lamina::infer {
namespace {

/// Number of tokens whose logits are in memory at once.
constexpr int64_t kLogitRows = 64;

class Recorder final : public nn::ForwardObserver {
 public:
  Recorder(const InspectOptions& options, int64_t tokens) : options_(options), tokens_(tokens) {}

  bool wants_attention(int64_t layer) const override {
    return std::find(options_.layers.begin(), options_.layers.end(), layer) != options_.layers.end();
  }
  void attention(int64_t layer, int64_t first_key, const Tensor& weights) override;
  bool wants_residual() const override { return options_.hidden_norms; }
  void residual(int64_t layer, const Tensor& x) override;

  std::vector<AttentionMap> maps;
  std::vector<std::vector<double>> norms;

 private:
  const InspectOptions& options_;
  int64_t tokens_;
};

void Recorder::attention(int64_t layer, int64_t first_key, const Tensor& weights) {
  const int64_t heads = weights.dim(2);
  const int64_t keys = weights.dim(3);
  std::vector<int64_t> wanted = options_.heads;
  if (wanted.empty()) {
    wanted.resize(static_cast<size_t>(heads));
    std::iota(wanted.begin(), wanted.end(), 0);
  }
  if (first_key == 0) {
    for (const int64_t head : wanted) {
      LAMINA_CHECK(head >= 0 && head < heads, "inspect: head ", head, " of layer ", layer, ", which has ", heads,
                   " heads; expected a number below that");
      maps.push_back({layer, head, std::vector<float>(static_cast<size_t>(tokens_ * tokens_))});
    }
  }
  const std::vector<float> values = weights.to_vector<float>();
  AttentionMap* map = maps.data() + (maps.size() - wanted.size());
  for (const int64_t head : wanted) {
    for (int64_t query = 0; query < tokens_; ++query) {
      const auto from = values.begin() + (query * heads + head) * keys;
      std::copy(from, from + keys, map->weights.begin() + query * tokens_ + first_key);
    }
    ++map;
  }
}

void Recorder::residual(int64_t /*layer*/, const Tensor& x) {
  const std::vector<float> values = x.to_vector<float>();
  const auto width = static_cast<size_t>(x.dim(2));
  norms.emplace_back();
  for (size_t first = 0; first < values.size(); first += width) {
    double square = 0;
    for (size_t i = first; i < first + width; ++i) square += double{values[i]} * values[i];
    norms.back().push_back(std::sqrt(square));
  }
}

Tensor batch_of(const nn::Model& model, std::span<const text::TokenId> ids) {
  const std::vector<int64_t> wide(ids.begin(), ids.end());
  return Tensor::from(wide, {1, static_cast<int64_t>(wide.size())}, model.device());
}

/// Calls body(token, log-probabilities) for every token of hidden [1, tokens, d_model].
void for_each_distribution(nn::Model& model, const Tensor& hidden, int64_t vocab,
                           const std::function<void(int64_t, std::span<const float>)>& body) {
  const int64_t tokens = hidden.dim(1);
  for (int64_t first = 0; first < tokens; first += kLogitRows) {
    const int64_t count = std::min(kLogitRows, tokens - first);
    const Tensor logits = model.logits_of(hidden.slice(1, first, count));
    std::vector<float> values = logits.to_vector<float>();
    for (int64_t i = 0; i < count; ++i) {
      const std::span<float> row(values.data() + i * logits.dim(2), static_cast<size_t>(vocab));
      const double largest = *std::max_element(row.begin(), row.end());
      double sum = 0;
      for (const float value : row) sum += std::exp(value - largest);
      const double total = largest + std::log(sum);
      for (float& value : row) value = static_cast<float>(value - total);
      body(first + i, row);
    }
  }
}

Prediction describe(std::span<const float> logprobs, const InspectOptions& options, std::span<const float> other) {
  Prediction prediction;
  for (size_t i = 0; i < logprobs.size(); ++i) {
    const double p = std::exp(double{logprobs[i]});
    if (p == 0) continue;
    prediction.entropy -= p * logprobs[i];
    if (!other.empty()) prediction.kl += p * (double{logprobs[i]} - other[i]);
  }
  prediction.kl = std::max(prediction.kl, 0.0);  // rounding can make the divergence of two equal distributions negative
  std::vector<text::TokenId> order(logprobs.size());
  std::iota(order.begin(), order.end(), 0);
  const auto top = std::min<size_t>(static_cast<size_t>(options.top), order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(top), order.end(),
                    [&](text::TokenId a, text::TokenId b) {
                      const float x = logprobs[static_cast<size_t>(a)];
                      const float y = logprobs[static_cast<size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  for (size_t i = 0; i < top; ++i) prediction.top.emplace_back(order[i], logprobs[static_cast<size_t>(order[i])]);
  return prediction;
}

int64_t checked_vocab(const nn::Model& model, int64_t vocab) {
  const int64_t all = model.spec().vocab_size;
  LAMINA_CHECK(vocab >= 0 && vocab <= all, "inspect: a vocabulary of ", vocab, " ids, the model has ", all);
  return vocab == 0 ? all : vocab;
}

}  // namespace

Inspection inspect(nn::Model& model, std::span<const text::TokenId> ids, const InspectOptions& options) {
  const auto tokens = static_cast<int64_t>(ids.size());
  const int64_t vocab = checked_vocab(model, options.vocab_size);
  const auto layers = static_cast<int64_t>(arch::layer_blocks(model.spec()).size());
  LAMINA_CHECK(tokens > 0, "inspect: no tokens; expected at least one");
  LAMINA_CHECK(options.compare.empty() || static_cast<int64_t>(options.compare.size()) == tokens * vocab,
               "inspect: ", options.compare.size(), " log-probabilities to compare with; expected ", tokens * vocab);
  for (const int64_t layer : options.layers) {
    LAMINA_CHECK(layer >= 0 && layer < layers, "inspect: layer ", layer, " of a model with ", layers,
                 " layers; expected a number below that");
  }
  Recorder recorder(options, tokens);
  const Tensor hidden = model.hidden(batch_of(model, ids), {.observer = &recorder});
  Inspection result;
  for_each_distribution(model, hidden, vocab, [&](int64_t token, std::span<const float> logprobs) {
    const auto other = options.compare.empty()
                           ? options.compare
                           : options.compare.subspan(static_cast<size_t>(token * vocab), static_cast<size_t>(vocab));
    result.predictions.push_back(describe(logprobs, options, other));
    if (token + 1 == tokens) return;
    const auto next = static_cast<size_t>(ids[static_cast<size_t>(token + 1)]);
    LAMINA_CHECK(next < logprobs.size(), "inspect: token id ", next, "; expected ids below ", vocab);
    result.predictions.back().logprob = logprobs[next];
  });
  result.attention = std::move(recorder.maps);
  result.hidden_norms = std::move(recorder.norms);
  return result;
}

std::vector<float> next_token_logprobs(nn::Model& model, std::span<const text::TokenId> ids, int64_t vocab_size) {
  const int64_t vocab = checked_vocab(model, vocab_size);
  std::vector<float> all;
  all.reserve(ids.size() * static_cast<size_t>(vocab));
  for_each_distribution(model, model.hidden(batch_of(model, ids)), vocab,
                        [&](int64_t, std::span<const float> row) { all.insert(all.end(), row.begin(), row.end()); });
  return all;
}

}  // namespace lamina::infer
