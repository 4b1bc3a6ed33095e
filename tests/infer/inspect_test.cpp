// Predictions, divergences, embeddings and fingerprints of a model, against sums written from the formulas in f64.
#include "lamina/infer/inspect.h"
#include "lamina/infer/embed.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lamina/infer/fingerprint.h"
#include "nn/model_support.h"
#include "support/error_of.h"

namespace lamina::testing {
namespace {

using infer::Inspection;

std::vector<text::TokenId> narrow_ids(const std::vector<int64_t>& ids) { return {ids.begin(), ids.end()}; }

/// Softmax of the first `vocab` logits of each token, in f64.
std::vector<std::vector<double>> distributions(nn::Model& model, const std::vector<int64_t>& ids, size_t vocab) {
  const Tensor logits = model.logits(ids_tensor(ids, 1, model.device()));
  const auto all = static_cast<size_t>(logits.dim(2));
  const auto values = logits.to_vector<double>();
  std::vector<std::vector<double>> rows;
  for (size_t token = 0; token < ids.size(); ++token) {
    const double* row = values.data() + token * all;
    double total = 0;
    for (size_t i = 0; i < vocab; ++i) total += std::exp(row[i]);
    rows.emplace_back();
    for (size_t i = 0; i < vocab; ++i) rows.back().push_back(std::exp(row[i]) / total);
  }
  return rows;
}

TEST(Inspect, PredictionsAndDivergenceAreTheFormulas) {
  const NamedSpec named = changed("llama-tiny", {});
  const Device device = Device::cpu(2);
  nn::Model model(named.spec, device), other(named.spec, device);
  scramble(model);
  scramble(other, 8);
  const auto vocab = static_cast<size_t>(named.spec.vocab_size) - 3;  // a padded vocabulary
  const auto ids = random_ids(70, static_cast<int64_t>(vocab));       // more than are computed at a time
  const auto p = distributions(model, ids, vocab);
  const auto q = distributions(other, ids, vocab);
  infer::InspectOptions options{.top = 3, .vocab_size = static_cast<int64_t>(vocab)};
  const auto compared = infer::next_token_logprobs(other, narrow_ids(ids), options.vocab_size);
  options.compare = compared;
  const Inspection result = infer::inspect(model, narrow_ids(ids), options);
  ASSERT_EQ(result.predictions.size(), ids.size());
  EXPECT_TRUE(result.attention.empty() && result.hidden_norms.empty());
  for (size_t t = 0; t < ids.size(); ++t) {
    double entropy = 0, kl = 0;
    for (size_t i = 0; i < vocab; ++i) {
      entropy -= p[t][i] * std::log(p[t][i]);
      kl += p[t][i] * std::log(p[t][i] / q[t][i]);
    }
    const infer::Prediction& prediction = result.predictions[t];
    EXPECT_NEAR(prediction.entropy, entropy, 1e-4);
    EXPECT_NEAR(prediction.kl, kl, 1e-4);
    if (t + 1 < ids.size()) {
      EXPECT_NEAR(prediction.logprob, std::log(p[t][static_cast<size_t>(ids[t + 1])]), 1e-4);
    }
    ASSERT_EQ(prediction.top.size(), 3U);
    EXPECT_NEAR(prediction.top[0].second, std::log(*std::max_element(p[t].begin(), p[t].end())), 1e-4);
    for (const auto& [id, logprob] : prediction.top) {
      EXPECT_NEAR(logprob, std::log(p[t][static_cast<size_t>(id)]), 1e-4);
    }
    EXPECT_GE(prediction.top[0].second, prediction.top[1].second);
  }
}

TEST(Inspect, KeepsTheHeadsThatWereAskedFor) {
  const NamedSpec named = changed("llama-tiny", {});
  const Device device = Device::cpu(2);
  nn::Model model(named.spec, device);
  scramble(model);
  const auto ids = narrow_ids(random_ids(9, named.spec.vocab_size));
  const Inspection all = infer::inspect(model, ids, {.layers = {0, 1}, .hidden_norms = true});
  const Inspection one = infer::inspect(model, ids, {.layers = {1}, .heads = {1}});
  ASSERT_EQ(one.attention.size(), 1U);
  EXPECT_TRUE(one.hidden_norms.empty());
  ASSERT_EQ(all.hidden_norms.size(), arch::layer_blocks(named.spec).size());
  EXPECT_EQ(all.hidden_norms[0].size(), ids.size());
  int found = 0;
  for (const infer::AttentionMap& map : all.attention) {
    if (map.layer != 1 || map.head != 1) continue;
    EXPECT_EQ(map.weights, one.attention[0].weights);
    ++found;
  }
  EXPECT_EQ(found, 1);
  EXPECT_NE(error_of([&] { infer::inspect(model, ids, {.layers = {99}}); }).find("layer 99"), std::string::npos);
  EXPECT_NE(error_of([&] { infer::inspect(model, ids, {.layers = {0}, .heads = {99}}); }).find("head 99"),
            std::string::npos);
  EXPECT_NE(error_of([&] { infer::inspect(model, {}, {}); }).find("no tokens"), std::string::npos);
}

TEST(Inspect, EmbeddingsAreNormalizedMeansAndIndependentOfTheBatch) {
  io::VectorRecipe recipe;
  recipe.normalize = true;
  for (const char* name : {"llama-tiny", "mamba-tiny", "gpt2-tiny", "bert-tiny", "roberta-tiny", "modernbert-tiny",
                           "longformer-tiny", "bigbird-tiny"}) {
    const NamedSpec named = changed(name, {});
    nn::Model model(named.spec, Device::cpu(2));
    scramble(model);
    std::vector<std::vector<text::TokenId>> texts;
    for (const int64_t length : {1, 7, 4}) {
      texts.push_back(narrow_ids(random_ids(length, named.spec.vocab_size, static_cast<uint64_t>(length))));
    }
    const auto together = infer::embed_together(model, texts, recipe);
    ASSERT_EQ(together.size(), 3U);
    for (size_t t = 0; t < texts.size(); ++t) {
      const std::vector<int64_t> ids(texts[t].begin(), texts[t].end());
      const auto hidden = model.hidden(ids_tensor(ids, 1, model.device())).to_vector<double>();
      const auto width = static_cast<size_t>(named.spec.d_model);
      std::vector<double> mean(width);
      for (size_t i = 0; i < hidden.size(); ++i) mean[i % width] += hidden[i];
      double square = 0;
      for (const double value : mean) square += value * value;
      for (size_t i = 0; i < width; ++i) EXPECT_NEAR(together[t][i], mean[i] / std::sqrt(square), 1e-4) << name;
    }
  }
}

TEST(Fingerprint, ChangesWithWeightsArchitectureAndFormat) {
  const NamedSpec named = changed("llama-tiny", {});
  const Device device = Device::cpu(1);
  nn::Model model(named.spec, device), same(named.spec, device);
  const std::string first = infer::model_fingerprint(model, nullptr, {});
  EXPECT_EQ(first.size(), 16U);
  EXPECT_EQ(first, infer::model_fingerprint(same, nullptr, {}));
  EXPECT_NE(first, infer::model_fingerprint(same, nullptr, nn::parse_weight_formats("q8")));
  scramble(same);
  EXPECT_NE(first, infer::model_fingerprint(same, nullptr, {}));
  const nn::Model longer(changed("llama-tiny", {"context=99"}).spec, device);
  EXPECT_NE(first, infer::model_fingerprint(longer, nullptr, {}));
}

}  // namespace
}  // namespace lamina::testing
