#include "lamina/infer/knn.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "lamina/arch/layers.h"
#include "lamina/infer/windows.h"

namespace lamina::infer {

namespace {

constexpr int64_t kProbeTokens = 16;

/// Stored states predict next tokens, which only decoders do.
void check_decoder(const nn::Model& model) {
  LAMINA_CHECK(!model.spec().encoder && arch::is_causal(model.spec()), "knn: the model is an encoder",
               model.spec().encoder ? "–decoder" : "", "; expected a decoder, whose states predict the next token");
}

/// The state after the tokens 0 … 15, or as many as the vocabulary and the context have.
std::vector<float> probe_state(nn::Model& model) {
  std::vector<int64_t> ids(
      static_cast<size_t>(std::min({kProbeTokens, model.spec().vocab_size, model.spec().context})));
  std::iota(ids.begin(), ids.end(), 0);
  const auto length = static_cast<int64_t>(ids.size());
  const Tensor hidden = model.hidden(Tensor::from(ids, {1, length}, model.device()));
  return hidden.slice(1, length - 1, 1).contiguous().to(DType::f32).to_vector<float>();
}

/// Whether a model has the probe's state, up to the rounding of quantized weights.
bool has_state(nn::Model& model, std::span<const float> probe) {
  const std::vector<float> own = probe_state(model);
  double apart = 0;
  double length = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    const double difference = double{own[i]} - double{probe[i]};
    apart += difference * difference;
    length += double{probe[i]} * double{probe[i]};
  }
  return apart <= 0.25 * length;
}

}  // namespace

KnnLm::KnnLm(std::shared_ptr<const search::StateStore> store, const KnnOptions& options, nn::Model& model)
    : store_(std::move(store)), options_(options) {
  check_decoder(model);
  LAMINA_CHECK(options.neighbors >= 1, "knn: ", options.neighbors, " neighbours; expected at least 1");
  LAMINA_CHECK(options.lambda >= 0 && options.lambda <= 1, "knn: lambda ", options.lambda, "; expected 0 to 1");
  LAMINA_CHECK(options.temperature >= 0 && std::isfinite(options.temperature), "knn: temperature ", options.temperature,
               "; expected a positive number, or 0 for the store's own scale");
  LAMINA_CHECK(options.beam == 0 || store_->has_graph(),
               "knn: approximate search needs a graph; make the store with --graph, or leave out --knn-beam");
  LAMINA_CHECK(store_->dim() == model.spec().d_model && store_->vocab() == model.spec().vocab_size,
               "knn: the store has ", store_->dim(), " dimensions and ", store_->vocab(), " tokens, the model ",
               model.spec().d_model, " and ", model.spec().vocab_size, "; give the store of this model, made from ",
               store_->model());
  LAMINA_CHECK(store_->probe().empty() || has_state(model, store_->probe()),
               "knn: the store holds the states of another model, ", store_->model(),
               "; make one of this model with `lamina index states`");
  if (options_.temperature == 0) options_.temperature = store_->scale();
}

double KnnLm::Prediction::probability(text::TokenId token) const {
  const auto found = std::lower_bound(tokens.begin(), tokens.end(), std::pair(token, -1.0));
  return found != tokens.end() && found->first == token ? found->second : 0;
}

std::vector<KnnLm::Prediction> KnnLm::predict(std::span<const float> states, const Threads& threads) const {
  std::vector<Prediction> predictions;
  for (const auto& neighbors : store_->search(states, options_.neighbors, options_.beam, threads)) {
    const double nearest = neighbors[0].score;  // score is the negative distance
    Prediction prediction{options_.lambda, {}};
    if (options_.by_distance) prediction.lambda *= std::exp(nearest / options_.temperature);
    std::map<text::TokenId, double> sums;
    double total = 0;
    for (const search::Neighbor& neighbor : neighbors) {
      const double weight = std::exp((neighbor.score - nearest) / options_.temperature);
      sums[static_cast<text::TokenId>(store_->token(neighbor.row))] += weight;
      total += weight;
    }
    for (const auto& [token, sum] : sums) prediction.tokens.emplace_back(token, sum / total);
    predictions.push_back(std::move(prediction));
  }
  return predictions;
}

void KnnLm::interpolate(std::span<const float> state, std::span<float> logits, const Threads& threads) const {
  const Prediction prediction = predict(state, threads)[0];
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double log_keep = std::log1p(-prediction.lambda) - std::log(sum);
  for (float& logit : logits) logit = static_cast<float>(static_cast<double>(logit) - largest + log_keep);
  for (const auto& [token, probability] : prediction.tokens) {
    float& logit = logits[static_cast<size_t>(token)];
    logit = static_cast<float>(std::log(std::exp(static_cast<double>(logit)) + prediction.lambda * probability));
  }
}

search::StateStoreBuilder collect_states(nn::Model& model, std::span<const text::TokenId> ids, DType dtype,
                                         const EvaluateOptions& options) {
  check_decoder(model);
  search::StateStoreBuilder store(dtype, model.spec().d_model, model.spec().vocab_size);
  store.set_probe(probe_state(model));
  each_window_batch(model, ids, options, [&](const WindowBatch& batch) {
    const std::vector<float> states = batch.states.to_vector<float>();
    const auto width = static_cast<size_t>(batch.states.dim(1));
    for (size_t row = 0; row < batch.targets.size(); ++row) {
      if (!batch.is_counted(row)) continue;
      store.add(std::span(states).subspan(row * width, width), std::span(batch.targets).subspan(row, 1));
    }
  });
  return store;
}

}  // namespace lamina::infer
