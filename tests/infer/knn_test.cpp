// kNN-LM: predictions against the formula over all states, and lower loss on held-out text of the same source.
#include "lamina/infer/knn.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "lamina/base/philox.h"
#include "lamina/infer/generator.h"
#include "lamina/infer/retrieval.h"
#include "nn/model_support.h"

namespace lamina::testing {
namespace {

using infer::KnnLm;
using infer::KnnOptions;
using text::TokenId;

/// Text of a second-order Markov source: two tokens mostly decide the third.
std::vector<TokenId> markov_text(int64_t length, int64_t vocab, uint64_t stream) {
  std::vector<TokenId> ids{1, 2};
  for (uint64_t i = 0; static_cast<int64_t>(ids.size()) < length; ++i) {
    const uint32_t noise = philox_word({7, stream}, i);
    const auto rule = static_cast<uint32_t>(ids[ids.size() - 1] * 5 + ids[ids.size() - 2] * 3 + 1);
    ids.push_back(static_cast<TokenId>((noise % 8 == 0 ? noise / 8 : rule) % static_cast<uint32_t>(vocab)));
  }
  return ids;
}

class KnnTest : public ::testing::Test {
 protected:
  static constexpr int64_t kVocab = 11;
  KnnTest()
      : path_((std::filesystem::temp_directory_path() / str("knn_test", ::getpid())).string()),
        device_(Device::cpu(2)),
        model_(tiny_spec(), device_) {
    scramble(model_);
  }
  ~KnnTest() override { std::filesystem::remove(path_); }

  static arch::ArchSpec tiny_spec() {
    arch::ArchSpec spec = arch::load_preset("llama-tiny");
    spec.vocab_size = kVocab;
    return arch::resolve(spec, "knn");
  }
  std::shared_ptr<const search::StateStore> store(DType dtype, int64_t tokens, bool graph = false) {
    const infer::EvaluateOptions options{.context = 16};
    infer::collect_states(model_, markov_text(tokens, kVocab, 1), dtype, options)
        .write(path_, "tiny", graph, {8, 64, 1}, device_.threads());
    return search::StateStore::open(path_);
  }

  std::string path_;
  Device device_;
  nn::Model model_;
};

TEST_F(KnnTest, PredictionsFollowTheFormula) {
  const auto states = store(DType::f16, 400);
  const std::vector<int64_t> ids{3, 1, 4, 1, 5, 9, 2, 6};
  const Tensor hidden = model_.hidden(Tensor::from(ids, {1, 8}, device_));
  const std::vector<float> queries = hidden.to_vector<float>();
  const auto width = static_cast<size_t>(states->dim());

  // The stored states, computed again and rounded as stored.
  const std::vector<TokenId> text = markov_text(400, kVocab, 1);
  std::vector<std::vector<double>> keys;
  for (size_t begin = 0; begin + 1 < text.size(); begin += 16) {
    const std::vector<int64_t> window(
        text.begin() + static_cast<std::ptrdiff_t>(begin),
        text.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 16, text.size() - 1)));
    const auto length = static_cast<int64_t>(window.size());
    const auto rows = model_.hidden(Tensor::from(window, {1, length}, device_)).to_vector<float>();
    for (size_t at = 0; at < rows.size(); at += width) {
      keys.emplace_back();
      for (size_t i = 0; i < width; ++i) keys.back().push_back(static_cast<float>(f16(rows[at + i])));
    }
  }
  ASSERT_EQ(keys.size(), 399U);
  for (const bool by_distance : {false, true}) {
    KnnOptions options;
    options.neighbors = 12;
    options.lambda = 0.4;
    options.temperature = 3;
    options.by_distance = by_distance;
    const auto predictions = KnnLm(states, options, model_).predict(queries, device_.threads());
    ASSERT_EQ(predictions.size(), 8U);
    for (size_t q = 0; q < 8; ++q) {
      std::vector<std::pair<double, size_t>> distances;
      for (size_t key = 0; key < keys.size(); ++key) {
        double sum = 0;
        for (size_t i = 0; i < width; ++i) {
          const double difference = static_cast<double>(queries[q * width + i]) - keys[key][i];
          sum += difference * difference;
        }
        distances.emplace_back(sum, key);
      }
      std::sort(distances.begin(), distances.end());
      std::map<TokenId, double> weights;
      double total = 0;
      for (size_t i = 0; i < 12; ++i) {
        const double weight = std::exp(-distances[i].first / 3);
        weights[text[distances[i].second + 1]] += weight;
        total += weight;
      }
      EXPECT_NEAR(predictions[q].lambda, by_distance ? 0.4 * std::exp(-distances[0].first / 3) : 0.4, 1e-4);
      double sum = 0;
      for (TokenId token = 0; token < kVocab; ++token) {
        EXPECT_NEAR(predictions[q].probability(token), weights[token] / total, 1e-4) << "token " << token;
        sum += predictions[q].probability(token);
      }
      EXPECT_NEAR(sum, 1, 1e-12);
    }
  }
}

TEST_F(KnnTest, LowersPerplexityOfHeldOutText) {
  const std::vector<TokenId> held_out = markov_text(300, kVocab, 2);
  infer::EvaluateOptions options{.context = 16};
  const double without = infer::evaluate(model_, held_out, options).perplexity();
  for (const DType dtype : {DType::f16, DType::u8}) {
    const auto states = store(dtype, 3000, true);
    for (const bool by_distance : {false, true}) {
      KnnOptions knn;
      knn.lambda = 0.5;
      knn.neighbors = 16;
      knn.by_distance = by_distance;
      options.knn = std::make_shared<KnnLm>(states, knn, model_);
      const double exact = infer::evaluate(model_, held_out, options).perplexity();
      EXPECT_LT(exact, 0.9 * without) << dtype;
      knn.beam = 64;
      options.knn = std::make_shared<KnnLm>(states, knn, model_);
      EXPECT_NEAR(infer::evaluate(model_, held_out, options).perplexity(), exact, 0.05 * exact) << dtype;
    }
    KnnOptions none;
    none.lambda = 0;
    options.knn = std::make_shared<KnnLm>(states, none, model_);
    EXPECT_NEAR(infer::evaluate(model_, held_out, options).perplexity(), without, 1e-6 * without);
  }
}

TEST_F(KnnTest, GenerationUsesNeighbors) {
  const auto states = store(DType::f32, 1500);
  const std::vector<TokenId> prompt = markov_text(12, kVocab, 3);
  infer::GenerateOptions options;
  options.max_tokens = 4;
  options.sampler.temperature = 0;
  const auto plain = infer::generate(model_, {prompt}, options)[0].ids;
  KnnOptions knn;
  knn.lambda = 0;
  options.knn = std::make_shared<KnnLm>(states, knn, model_);
  EXPECT_EQ(infer::generate(model_, {prompt}, options)[0].ids, plain);
  // With the neighbours alone, each token is the likeliest of their prediction.
  knn.lambda = 1;
  const auto only = std::make_shared<KnnLm>(states, knn, model_);
  options.knn = only;
  const std::vector<TokenId> answer = infer::generate(model_, {prompt}, options)[0].ids;
  std::vector<int64_t> ids(prompt.begin(), prompt.end());
  for (const TokenId token : answer) {
    const auto length = static_cast<int64_t>(ids.size());
    const Tensor hidden = model_.hidden(Tensor::from(ids, {1, length}, device_)).slice(1, length - 1, 1);
    const auto prediction = only->predict(hidden.to_vector<float>(), device_.threads())[0];
    for (TokenId other = 0; other < kVocab; ++other) {
      EXPECT_GE(prediction.probability(token) + 1e-4, prediction.probability(other));
    }
    ids.push_back(token);
  }
  options.draft_tokens = 2;
  expect_error([&] { infer::generate(model_, {prompt}, options); }, "exclude grammars");
}

TEST_F(KnnTest, RefusesWhatDoesNotFit) {
  const auto states = store(DType::f16, 50);
  const auto with = [&](auto change) {
    KnnOptions options;
    change(options);
    return [=, this] { KnnLm(states, options, model_); };
  };
  expect_error(with([](KnnOptions& o) { o.neighbors = 0; }), "at least 1");
  expect_error(with([](KnnOptions& o) { o.lambda = 1.5; }), "0 to 1");
  expect_error(with([](KnnOptions& o) { o.beam = 10; }), "--graph");
  nn::Model other(arch::resolve(arch::load_preset("llama-tiny"), "other"), device_);
  expect_error([&] { KnnLm(states, {}, other); }, "give the store of this model");
  nn::Model stranger(tiny_spec(), device_, {.seed = 9});
  expect_error([&] { KnnLm(states, {}, stranger); }, "the states of another model, tiny");
  model_.store_weights(nn::parse_weight_formats("q4"));
  KnnLm(states, {}, model_);  // the same model in another format
  for (const char* preset : {"bert-tiny", "bart-tiny"}) {
    nn::Model encoder(arch::resolve(arch::load_preset(preset)), device_);
    expect_error([&] { infer::collect_states(encoder, markov_text(50, kVocab, 1), DType::f16); }, "expected a decoder");
    expect_error([&] { KnnLm(states, {}, encoder); }, "expected a decoder");
  }
}

TEST(Retrieval, FillsTheTemplate) {
  EXPECT_EQ(infer::retrieval_prompt("P: {passages} Q: {question}?", "who {passages}", {{"a", "one"}, {"b", "two"}}),
            "P: [1] one\n\n[2] two Q: who {passages}?");
  expect_error([] { infer::retrieval_prompt("{question}", "q", {}); }, "{passages} is missing");
}

}  // namespace
}  // namespace lamina::testing
