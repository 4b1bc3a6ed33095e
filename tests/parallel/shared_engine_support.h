#pragma once

#include <gtest/gtest.h>

#include <map>

#include "lamina/infer/engine/engine.h"
#include "lamina/infer/load.h"
#include "lamina/infer/runner/rank_steps.h"
#include "nn/model_support.h"

namespace lamina::testing {

using infer::Finish;
using infer::Request;
using infer::RequestId;
using text::TokenId;
using Ranks = std::shared_ptr<const nn::TensorParallel>;

struct GivenAnswer {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
  std::vector<infer::ScoredToken> prompt;
  std::optional<Finish> finish;
  std::string error;
  int64_t cached = 0;
};
using GivenAnswers = std::map<std::pair<RequestId, int64_t>, GivenAnswer>;

inline infer::Listener listen_into(GivenAnswers& answers) {
  return [&answers](const infer::Update& update) {
    GivenAnswer& to = answers[{update.request, update.answer}];
    for (const infer::ScoredToken& token : update.tokens) {
      to.ids.push_back(token.id);
      to.logprobs.push_back(token.logprob);
    }
    to.prompt.insert(to.prompt.end(), update.prompt.begin(), update.prompt.end());
    to.finish = update.finish;
    to.error = update.error;
    to.cached = update.cached_tokens;
    return true;
  };
}

inline std::vector<TokenId> random_tokens(int64_t length, uint64_t seed) {
  const std::vector<int64_t> ids = random_ids(length, 96, seed);
  return {ids.begin(), ids.end()};
}

/// Two shared beginnings, greedy and sampled, with penalties, several answers, log-probabilities and prompt scores.
inline Request varied_request(uint64_t i) {
  Request request;
  request.prompt = random_tokens(20, i % 2);
  const std::vector<TokenId> own = random_tokens(1 + static_cast<int64_t>(i * 5 % 17), 100 + i);
  request.prompt.insert(request.prompt.end(), own.begin(), own.end());
  request.max_tokens = 4 + static_cast<int64_t>(i * 7 % 13);
  request.sampler = {.temperature = i % 3 == 0 ? 0.0 : 0.8, .top_k = 20, .seed = i};
  request.logprobs = 1;
  if (i % 4 == 1) request.sampler.frequency_penalty = 0.3;
  if (i % 5 == 2) request.n = 2;
  if (i % 6 == 3) request.prompt_logprobs = 1;
  return request;
}

/// Answers of a request that has an engine of one process of its own.
inline GivenAnswers answered_alone(nn::Model& whole, const Request& request) {
  GivenAnswers answers;
  infer::Engine engine(std::make_unique<infer::ModelRunner>(whole, infer::ModelRunnerOptions{.rows = 1}),
                       {.prefix_cache = false});
  engine.submit(request, listen_into(answers));
  engine.run_until_idle();
  return answers;
}

/// This rank's part of a model.
inline std::unique_ptr<nn::Model> shard_of(const nn::Model& whole, const Ranks& ranks) {
  auto model = std::make_unique<nn::Model>(whole.spec(), Device::meta(), nn::ModelOptions{.parallel = ranks});
  model->adopt_state_dict(infer::own_tensors(*model, whole.state_dict()));
  return model;
}

inline void expect_near(const std::vector<float>& got, const std::vector<float>& expected, size_t count) {
  for (size_t i = 0; i < count; ++i) EXPECT_NEAR(got[i], expected[i], 1e-4) << "token " << i;
}

inline void expect_near(const std::vector<infer::ScoredToken>& got, const std::vector<infer::ScoredToken>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].id, expected[i].id);
    EXPECT_NEAR(got[i].logprob, expected[i].logprob, 1e-4) << "prompt token " << i;
  }
}

}  // namespace lamina::testing
