// Beam search: equals greedy with one beam and exhaustive search with enough beams; vectors of texts.
#include "lamina/infer/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "lamina/infer/embed.h"
#include "lamina/infer/generator.h"
#include "lamina/text/simple.h"
#include "nn/model_support.h"
#include "support/error_of.h"

namespace lamina::testing {
namespace {

using infer::beam_search;
using infer::BeamAnswer;
using infer::BeamOptions;
using infer::EarlyStopping;
using text::TokenId;

std::unique_ptr<nn::Model> tiny_model(int64_t vocab, uint64_t seed) {
  const arch::ArchSpec spec = arch::resolve(
      arch::with_overrides(arch::load_preset("llama-tiny"), {str("vocab_size=", vocab), "layers[0].repeat=1"}), "tiny");
  auto model = std::make_unique<nn::Model>(spec, Device::cpu(1), nn::ModelOptions{.dtype = DType::f32, .seed = seed});
  scramble(*model);
  return model;
}

/// Log probabilities of the next token by a full forward pass.
std::vector<double> log_probabilities(nn::Model& model, const std::vector<TokenId>& ids, double cap = 0) {
  const std::vector<int64_t> wide(ids.begin(), ids.end());
  const auto length = static_cast<int64_t>(ids.size());
  const Tensor logits = model.logits(Tensor::from(wide, {1, length}, model.device()));
  std::vector<double> row = logits.slice(1, length - 1, 1).to_vector<double>();
  double sum = 0;
  for (double& value : row) {
    if (cap > 0) value = cap * std::tanh(value / cap);
    sum += std::exp(value);
  }
  for (double& value : row) value -= std::log(sum);
  return row;
}

/// The best answer among all sequences.
struct Exhaustive {
  nn::Model& model;
  TokenId stop;
  int64_t most;
  double penalty;
  double cap = 0;
  std::vector<TokenId> best;
  double score = -1e300;

  void consider(const std::vector<TokenId>& answer, double sum, int64_t length) {
    const double value = sum / std::pow(static_cast<double>(length), penalty);
    if (value <= score) return;
    score = value;
    best = answer;
  }
  void search(std::vector<TokenId> ids, std::vector<TokenId> answer, double sum) {
    const auto length = static_cast<int64_t>(answer.size());
    if (length == most) return consider(answer, sum, length);
    const std::vector<double> next = log_probabilities(model, ids, cap);
    for (size_t id = 0; id < next.size(); ++id) {
      const auto token = static_cast<TokenId>(id);
      if (token == stop) {
        consider(answer, sum + next[id], length + 1);
        continue;
      }
      std::vector<TokenId> longer_ids = ids;
      std::vector<TokenId> longer = answer;
      longer_ids.push_back(token);
      longer.push_back(token);
      search(longer_ids, longer, sum + next[id]);
    }
  }
};

TEST(BeamSearch, FindsTheBestOfAllSequences) {
  for (const double penalty : {0.0, 1.0, 2.0, -1.0}) {
    for (const double cap : {0.0, 2.0}) {
      const auto owner = tiny_model(5, 3);
      nn::Model& model = *owner;
      const std::vector<TokenId> prompt = {1, 4, 2};
      Exhaustive all{model, 0, 4, penalty, cap, {}};
      all.search(prompt, {}, 0);
      BeamOptions options;
      options.beams = 300;  // more than the 4⁴ sequences without a stop token
      options.length_penalty = penalty;
      options.early_stopping = EarlyStopping::never;
      options.max_tokens = 4;
      options.stop_tokens = {0};
      options.logit_cap = cap;
      const std::vector<BeamAnswer> found = beam_search(model, prompt, options);
      EXPECT_EQ(found[0].ids, all.best) << "penalty " << penalty << ", cap " << cap;
      EXPECT_NEAR(found[0].score, all.score, 1e-4);
    }
  }
}

TEST(BeamSearch, OneBeamIsGreedy) {
  for (const uint64_t seed : {1U, 2U, 3U}) {
    const auto owner = tiny_model(40, seed);
    nn::Model& model = *owner;
    const std::vector<TokenId> prompt = {7, 3, 12, 30};
    infer::GenerateOptions greedy{.max_tokens = 12, .sampler = {.temperature = 0}};
    greedy.stop_tokens = {5};
    BeamOptions options;
    options.beams = 1;
    options.max_tokens = 12;
    options.stop_tokens = {5};
    const std::vector<BeamAnswer> found = beam_search(model, prompt, options);
    const infer::Generation expected = infer::generate(model, {prompt}, greedy).at(0);
    EXPECT_EQ(found[0].ids, expected.ids);
    EXPECT_EQ(found[0].finish, expected.finish);
  }
}

TEST(BeamSearch, MoreBeamsNeverScoreWorseHereAndAnswersAreSorted) {
  const auto owner = tiny_model(12, 9);
  nn::Model& model = *owner;
  const std::vector<TokenId> prompt = {1, 2};
  BeamOptions options;
  options.max_tokens = 6;
  options.stop_tokens = {0, 3};
  options.beams = 5;
  options.answers = 5;
  const std::vector<BeamAnswer> found = beam_search(model, prompt, options);
  ASSERT_EQ(found.size(), 5U);
  for (size_t i = 0; i + 1 < found.size(); ++i) EXPECT_GE(found[i].score, found[i + 1].score);
  for (const BeamAnswer& answer : found) {
    std::vector<TokenId> ids = prompt;
    double sum = 0;
    for (const TokenId id : answer.ids) {
      sum += log_probabilities(model, ids)[static_cast<size_t>(id)];
      ids.push_back(id);
    }
    auto length = static_cast<double>(answer.ids.size());
    if (answer.finish == infer::Finish::stop_token) {
      const std::vector<double> next = log_probabilities(model, ids);
      const double either[] = {sum + next[0], sum + next[3]};
      length += 1;
      const double error =
          std::min(std::abs(either[0] / length - answer.score), std::abs(either[1] / length - answer.score));
      EXPECT_LT(error, 1e-4);
    } else {
      EXPECT_NEAR(sum / length, answer.score, 1e-4);
    }
  }
}

TEST(BeamSearch, RefusesWhatCannotWork) {
  const auto owner = tiny_model(8, 1);
  nn::Model& model = *owner;
  const std::vector<TokenId> prompt = {1, 2};
  const auto message = [&](const BeamOptions& options, const std::vector<TokenId>& ids) {
    return error_of([&] { beam_search(model, ids, options); });
  };
  EXPECT_NE(message({.beams = 0}, prompt).find("0 beams"), std::string::npos);
  EXPECT_NE(message({.beams = 2, .answers = 3}, prompt).find("3 answers"), std::string::npos);
  EXPECT_NE(message({}, {}).find("no tokens"), std::string::npos);
  EXPECT_NE(message({}, {1, 99}).find("token 99"), std::string::npos);
}

TEST(GenerateOptions, TheLogitCapIsThatOfTheFormula) {
  const auto owner = tiny_model(30, 4);
  nn::Model& model = *owner;
  const std::vector<TokenId> prompt = {1, 2, 3};
  infer::GenerateOptions options{.max_tokens = 8, .sampler = {.temperature = 1.0, .seed = 5}, .logit_cap = 0.5};
  const auto cached = infer::generate(model, {prompt}, options).at(0).ids;
  options.cache = false;
  EXPECT_EQ(cached, infer::generate(model, {prompt}, options).at(0).ids);
}

TEST(Embed, PoolsTheHiddenStates) {
  const auto owner = tiny_model(20, 6);
  nn::Model& model = *owner;
  const std::vector<std::vector<TokenId>> texts = {{1, 2, 3}, {4}, {5, 6, 7}, {1, 2, 3}};
  using arch::PoolingKind;
  for (const PoolingKind pooling : {PoolingKind::mean, PoolingKind::first, PoolingKind::last, PoolingKind::max}) {
    EXPECT_EQ(infer::pooling_named(std::string(names_of(pooling)[static_cast<size_t>(pooling)])), pooling);
    infer::EmbedOptions options{.batch = 2};
    options.recipe.pooling = pooling;
    const auto vectors = infer::embed(model, texts, options);
    ASSERT_EQ(vectors.size(), 4U);
    for (size_t t = 0; t < texts.size(); ++t) {
      const std::vector<int64_t> wide(texts[t].begin(), texts[t].end());
      const auto length = static_cast<int64_t>(wide.size());
      const Tensor hidden = model.hidden(Tensor::from(wide, {1, length}, model.device()));
      const std::vector<double> values = hidden.to_vector<double>();
      const size_t width = values.size() / wide.size();
      for (size_t i = 0; i < width; ++i) {
        double sum = 0;
        double most = values[i];
        for (size_t k = 0; k < wide.size(); ++k) {
          sum += values[k * width + i];
          most = std::max(most, values[k * width + i]);
        }
        const double expected = pooling == PoolingKind::mean    ? sum / static_cast<double>(length)
                                : pooling == PoolingKind::first ? values[i]
                                : pooling == PoolingKind::last  ? values[values.size() - width + i]
                                                                : most;
        EXPECT_NEAR(vectors[t][i], expected, 1e-5);
      }
    }
  }
  double square = 0;
  infer::EmbedOptions normalized;
  normalized.recipe.normalize = true;
  const auto unit = infer::embed(model, texts, normalized);
  for (const float value : unit[0]) square += value * value;
  EXPECT_NEAR(square, 1, 1e-5);
  EXPECT_NE(error_of([&] { infer::embed(model, {{}}); }).find("no tokens"), std::string::npos);
}

TEST(Embed, WritesAnArrayFile) {
  const std::string file = infer::npy_of({{1, 2, 3}, {4, 5, 6}}, 3);
  const std::string magic("\x93NUMPY\x01\x00", 8);
  EXPECT_TRUE(file.starts_with(magic));
  const size_t header = static_cast<unsigned char>(file[8]) + 256U * static_cast<unsigned char>(file[9]);
  EXPECT_EQ((10 + header) % 64, 0U);
  EXPECT_NE(file.find("'shape': (2, 3), }"), std::string::npos);
  EXPECT_EQ(file[10 + header - 1], '\n');
  EXPECT_EQ(file.size(), 10 + header + 6 * sizeof(float));
}

}  // namespace
}  // namespace lamina::testing
