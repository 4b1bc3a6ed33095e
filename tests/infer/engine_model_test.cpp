// The engine with real models: whatever else runs, a request gets the tokens it gets alone.
#include <gtest/gtest.h>

#include <map>

#include "lamina/infer/generator.h"
#include "lamina/infer/runner/model_runner.h"
#include "nn/model_support.h"

namespace lamina::testing {
namespace {

using infer::Request;
using infer::RequestId;
using text::TokenId;

struct ServedAnswer {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
  std::vector<infer::ScoredToken> prompt;
  int64_t cached = 0;
};
using ServedAnswers = std::map<std::pair<RequestId, int64_t>, ServedAnswer>;

infer::Listener serve_into(ServedAnswers& answers) {
  return [&answers](const infer::Update& update) {
    ServedAnswer& to = answers[{update.request, update.answer}];
    for (const infer::ScoredToken& token : update.tokens) {
      to.ids.push_back(token.id);
      to.logprobs.push_back(token.logprob);
    }
    to.prompt.insert(to.prompt.end(), update.prompt.begin(), update.prompt.end());
    to.cached = update.cached_tokens;
    return true;
  };
}

std::vector<TokenId> random_prompt(int64_t length, uint64_t seed) {
  const std::vector<int64_t> ids = random_ids(length, 96, seed);
  return {ids.begin(), ids.end()};
}

Request tiny_request(uint64_t i) {
  Request request;
  request.prompt = random_prompt(20, i % 2);  // two shared beginnings
  const std::vector<TokenId> own = random_prompt(1 + static_cast<int64_t>(i * 5 % 17), 100 + i);
  request.prompt.insert(request.prompt.end(), own.begin(), own.end());
  request.max_tokens = 4 + static_cast<int64_t>(i * 7 % 13);
  request.sampler = {.temperature = i % 3 == 0 ? 0.0 : 0.8, .top_k = 20, .seed = i};
  if (i % 4 == 1) request.sampler.frequency_penalty = 0.3;
  if (i % 5 == 2) request.n = 2;
  return request;
}

/// Answers of a request that has an engine of its own.
ServedAnswers served_alone(nn::Model& model, const Request& request) {
  ServedAnswers answers;
  infer::Engine engine(std::make_unique<infer::ModelRunner>(model, infer::ModelRunnerOptions{.rows = 1}),
                       {.prefix_cache = false});
  engine.submit(request, serve_into(answers));
  engine.run_until_idle();
  return answers;
}

TEST(engine_with_models, a_request_gets_the_tokens_it_gets_alone) {
  const Device device = Device::cpu(2);
  for (const char* preset :
       {"llama-tiny", "gemma-2-tiny", "hybrid-tiny", "mamba2-tiny", "deepseek-tiny", "falcon-h1-tiny", "lfm2-tiny",
        "recurrent-gemma-tiny", "minimax-tiny", "rwkv-4-tiny", "qwen3-next-tiny"}) {
    SCOPED_TRACE(preset);
    nn::Model model(arch::resolve(arch::load_preset(preset)), device);
    scramble(model);
    // Few pages: requests share prefixes, evict them, and are preempted.
    infer::ModelRunnerOptions options{.rows = 4, .context = 64, .page_size = 16};
    const bool states = infer::ModelRunner(model, {.rows = 1}).shape().state_slots > 0;
    const int64_t room = states ? 8 : 2;  // snapshots of states take slots
    options.cache_bytes = infer::ModelRunner(model, {.rows = room, .context = 64, .page_size = 16}).cache_bytes();
    infer::Engine engine(std::make_unique<infer::ModelRunner>(model, options),
                         {.rows = 4, .step_tokens = 24, .draft_tokens = 4});
    ServedAnswers answers;
    std::map<RequestId, Request> requests;
    for (uint64_t i = 0; i < 14; ++i) {
      const Request request = tiny_request(i);
      requests[engine.submit(request, serve_into(answers))] = request;
    }
    engine.run_until_idle();
    for (const auto& [id, request] : requests) {
      for (const auto& [key, alone] : served_alone(model, request)) {
        EXPECT_EQ((answers[{id, key.second}].ids), alone.ids) << "request " << id << ", answer " << key.second;
      }
    }
    EXPECT_EQ(engine.stats().pages_used, 0);
    EXPECT_EQ(engine.stats().states_used, 0);
    EXPECT_GT(engine.stats().cached_tokens, 0);
    if (std::string(preset) == "llama-tiny") {
      EXPECT_GT(engine.stats().preemptions, 0);
    }
  }
}

std::unique_ptr<nn::Model> tiny_model(const char* preset, const Device& device, bool rounded) {
  auto model = std::make_unique<nn::Model>(arch::resolve(arch::load_preset(preset)), device);
  scramble(*model);
  if (rounded) model->store_weights(nn::parse_weight_formats("q8"));
  return model;
}

/// Tokens are the same with and without drafts, alone and in a batch. Log-probabilities are, up to the rounding of
/// products with another number of rows.
TEST(engine_with_models, a_draft_model_changes_no_token_and_no_log_probability) {
  const Device device = Device::cpu(2);
  for (const char* preset : {"llama-tiny", "gemma-2-tiny", "hybrid-tiny", "mamba2-tiny", "falcon-h1-tiny"}) {
    const auto model = tiny_model(preset, device, false);
    for (const char* small : {preset, "llama-tiny", "mamba2-tiny"}) {
      SCOPED_TRACE(std::string(preset) + " with drafts of " + small);
      // Drafts of the rounded target are mostly right, those of another model mostly wrong.
      const auto draft = tiny_model(small, device, true);
      for (const int64_t rows : {1, 5}) {
        infer::ModelRunnerOptions options{.rows = rows, .context = 96, .page_size = 16};
        infer::Engine engine(std::make_unique<infer::ModelRunner>(*model, options), {.step_tokens = 64},
                             infer::draft_runner(draft.get(), options, rows));
        ServedAnswers answers;
        std::map<RequestId, Request> requests;
        for (uint64_t i = 0; i < 6; ++i) {
          Request request = tiny_request(i);
          request.max_tokens = 24;
          request.logprobs = 0;
          requests[engine.submit(request, serve_into(answers))] = request;
        }
        engine.run_until_idle();
        for (const auto& [id, request] : requests) {
          for (const auto& [key, alone] : served_alone(*model, request)) {
            const ServedAnswer& answer = answers[{id, key.second}];
            ASSERT_EQ(answer.ids, alone.ids) << "request " << id << ", answer " << key.second;
            for (size_t i = 0; i < alone.logprobs.size(); ++i) {
              EXPECT_NEAR(answer.logprobs[i], alone.logprobs[i], 2e-5) << "token " << i;
            }
          }
        }
        EXPECT_EQ(engine.stats().pages_used, 0);
        EXPECT_EQ(engine.stats().states_used, 0);
        EXPECT_GT(engine.stats().drafted, 0);
        if (small == preset) {
          EXPECT_GT(engine.stats().acceptance(), 0.5);
        }
      }
    }
  }
}

TEST(engine_with_models, prompt_scores_are_those_of_a_whole_forward) {
  const Device device = Device::cpu(2);
  for (const char* preset : {"llama-tiny", "hybrid-tiny"}) {
    nn::Model model(arch::resolve(arch::load_preset(preset)), device);
    scramble(model);
    infer::Engine engine(std::make_unique<infer::ModelRunner>(model, infer::ModelRunnerOptions{.rows = 2}),
                         {.step_tokens = 7});
    Request request;
    request.prompt = random_prompt(23, 3);
    request.max_tokens = 0;
    request.prompt_logprobs = 2;
    ServedAnswers answers;
    const RequestId id = engine.submit(request, serve_into(answers));
    engine.run_until_idle();
    const std::vector<infer::ScoredToken>& got = answers[{id, 0}].prompt;
    ASSERT_EQ(got.size(), 22U);
    const std::vector<int64_t> wide(request.prompt.begin(), request.prompt.end());
    const Tensor logits = model.logits(Tensor::from(wide, {1, 23}, device));
    for (size_t i = 0; i < got.size(); ++i) {
      const auto row = logits.slice(1, static_cast<int64_t>(i), 1).to_vector<double>();
      double sum = 0;
      for (const double logit : row) sum += std::exp(logit);
      const auto logprob = [&](TokenId token) { return row[static_cast<size_t>(token)] - std::log(sum); };
      EXPECT_EQ(got[i].id, request.prompt[i + 1]);
      EXPECT_NEAR(got[i].logprob, logprob(got[i].id), 1e-4) << preset << " " << i;
      const auto likeliest = std::max_element(row.begin(), row.end()) - row.begin();
      ASSERT_EQ(got[i].top.size(), 2U);
      EXPECT_NEAR(got[i].top[0].second, logprob(static_cast<TokenId>(likeliest)), 1e-4);
    }
  }
}

TEST(engine_with_models, bias_soft_cap_and_least_tokens_reach_the_sampler) {
  const Device device = Device::cpu(2);
  nn::Model model(arch::resolve(arch::load_preset("llama-tiny")), device);
  scramble(model);
  Request request = tiny_request(0);
  request.max_tokens = 6;
  const std::vector<TokenId> plain = served_alone(model, request).begin()->second.ids;
  Request biased = request;
  biased.bias = {{7, 1000.0F}};
  EXPECT_EQ(served_alone(model, biased).begin()->second.ids, std::vector<TokenId>(6, 7));
  Request stopped = request;
  stopped.stop_tokens = {plain[2]};
  EXPECT_LE(served_alone(model, stopped).begin()->second.ids.size(), 2U);
  stopped.min_tokens = 5;
  EXPECT_GE(served_alone(model, stopped).begin()->second.ids.size(), 5U);
  Request capped = request;  // greedy: a soft-cap changes no order
  capped.softcap = 5;
  EXPECT_EQ(served_alone(model, capped).begin()->second.ids, plain);
}

}  // namespace
}  // namespace lamina::testing
