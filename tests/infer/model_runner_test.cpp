// An engine over a real model gives the tokens and log-probabilities of full forward passes, whatever else it computes
// at the same time.
#include "lamina/infer/runner/model_runner.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lamina/infer/engine/engine.h"
#include "lamina/infer/runner/cache_size.h"
#include "lamina/infer/runner/decode_graphs.h"
#include "nn/model_support.h"

namespace lamina::infer {
namespace {

using testing::changed;
using testing::NamedSpec;

NamedSpec preset(const std::string& name) { return {name, arch::resolve(arch::load_preset(name), name)}; }

std::unique_ptr<nn::Model> model_of(const NamedSpec& named) {
  auto model = std::make_unique<nn::Model>(named.spec, Device::cpu(2));
  testing::scramble(*model);
  return model;
}

std::vector<TokenId> prompt_of(const nn::Model& model, int64_t length, uint64_t seed) {
  const std::vector<int64_t> ids = testing::random_ids(length, model.spec().vocab_size, seed);
  return {ids.begin(), ids.end()};
}

/// Logits [tokens, vocab] of a full forward pass.
std::vector<float> full_logits(nn::Model& model, const std::vector<TokenId>& tokens) {
  const std::vector<int64_t> ids(tokens.begin(), tokens.end());
  return model.logits(testing::ids_tensor(ids, 1, model.device())).to_vector<float>();
}

/// The answer that one Sampler gives over full forward passes.
std::vector<TokenId> reference(nn::Model& model, const Request& request) {
  Sampler sampler(request.sampler);
  sampler.see_prompt(request.prompt);
  std::vector<TokenId> tokens = request.prompt;
  const auto vocab = static_cast<size_t>(model.spec().vocab_size);
  for (int64_t i = 0; i < request.max_tokens; ++i) {
    const std::vector<float> logits = full_logits(model, tokens);
    tokens.push_back(sampler.next(std::span(logits).last(vocab)));
  }
  return {tokens.begin() + static_cast<int64_t>(request.prompt.size()), tokens.end()};
}

struct Answers {
  std::vector<std::vector<ScoredToken>> tokens;
  std::vector<std::vector<ScoredToken>> prompts;
  std::vector<TokenId> ids(size_t request) const {
    std::vector<TokenId> ids;
    for (const ScoredToken& token : tokens[request]) ids.push_back(token.id);
    return ids;
  }
};

Answers run(nn::Model& model, const std::vector<Request>& requests, const EngineOptions& options = {},
            const ModelRunnerOptions& runner = {.rows = 4, .page_size = 16}) {
  Answers answers;
  answers.tokens.resize(requests.size());
  answers.prompts.resize(requests.size());
  Engine engine(std::make_unique<ModelRunner>(model, runner), options);
  for (size_t i = 0; i < requests.size(); ++i) {
    engine.submit(requests[i], [&answers, i](const Update& update) {
      for (const ScoredToken& token : update.tokens) answers.tokens[i].push_back(token);
      for (const ScoredToken& token : update.prompt) answers.prompts[i].push_back(token);
      EXPECT_EQ(update.error, "");
      return true;
    });
  }
  engine.run_until_idle();
  return answers;
}

/// Requests with prompts of different lengths, some with the same beginning.
std::vector<Request> mixed_requests(const nn::Model& model, const SamplerOptions& sampler) {
  std::vector<Request> requests;
  constexpr int64_t kAnswer = 12;
  for (const int64_t length : {3, 37, 1, 20, 37, 9}) {
    Request request;
    request.prompt = prompt_of(model, std::min(length, model.spec().context - kAnswer), 5);
    request.max_tokens = kAnswer;
    request.sampler = sampler;
    request.sampler.seed = requests.size();
    requests.push_back(request);
  }
  return requests;
}

void expect_reference(const NamedSpec& named, const SamplerOptions& sampler, const EngineOptions& options) {
  const ::testing::ScopedTrace trace(__FILE__, __LINE__, named.name);
  const auto model = model_of(named);
  const std::vector<Request> requests = mixed_requests(*model, sampler);
  const Answers answers = run(*model, requests, options);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(answers.ids(i), reference(*model, requests[i])) << "request " << i;
  }
}

TEST(ModelRunner, GreedyTokensEqualFullForwards) {
  for (const char* name :
       {"llama-tiny", "mistral-tiny", "gemma-3-tiny", "deepseek-tiny", "mamba-tiny", "mamba2-tiny", "hybrid-tiny",
        "gpt2-tiny", "transformer-xl-tiny", "qwen3-moe-tiny", "falcon-h1-tiny", "lfm2-tiny", "recurrent-gemma-tiny",
        "jamba-tiny", "minimax-tiny", "rwkv-4-tiny", "qwen3-next-tiny"}) {
    expect_reference(preset(name), {.temperature = 0}, {.rows = 3, .step_tokens = 16});
  }
}

TEST(ModelRunner, SampledTokensEqualTheSampler) {
  expect_reference(preset("llama-tiny"), {.temperature = 0.8, .top_k = 20, .top_p = 0.9, .min_p = 0.01}, {});
  expect_reference(preset("llama-tiny"), {.temperature = 1.2, .typical_p = 0.9}, {.step_tokens = 16});
  expect_reference(preset("llama-tiny"),
                   {.repetition_penalty = 1.3, .presence_penalty = 0.4, .frequency_penalty = 0.3, .temperature = 0.7},
                   {.step_tokens = 16});
}

TEST(ModelRunner, DraftedTokensChangeNothing) {
  expect_reference(preset("llama-tiny"), {.temperature = 0}, {.draft_tokens = 4});
  expect_reference(preset("llama-tiny"), {.presence_penalty = 0.5, .temperature = 0.5}, {.draft_tokens = 4});
}

/// The frequencies of these models change as the sequence grows, so cached keys become invalid.
TEST(ModelRunner, FrequenciesThatDependOnTheLength) {
  const std::string scaling = R"(position.scaling={"kind":"dynamic_ntk","factor":2,"original_length":6})";
  expect_reference(changed("llama-tiny", {scaling}), {.temperature = 0}, {.step_tokens = 16, .prefix_cache = false});
  EXPECT_FALSE(ModelRunner(*model_of(changed("llama-tiny", {scaling}))).shares_pages());
}

/// The frequencies change at 33 tokens. The window of 16 tokens has left the first page by then, but recomputing the
/// cache writes to it.
TEST(ModelRunner, FrequenciesThatChangeAfterPagesLeftTheWindow) {
  const auto model = model_of(preset("phi-3-tiny"));
  Request request;
  request.prompt = prompt_of(*model, 25, 5);
  request.max_tokens = 12;
  request.sampler.temperature = 0;
  EXPECT_EQ(run(*model, {request}).ids(0), reference(*model, request));
}

TEST(ModelRunner, LogprobsOfPromptAndAnswer) {
  const auto model = model_of(preset("llama-tiny"));
  Request request;
  request.prompt = prompt_of(*model, 30, 2);
  request.max_tokens = 4;
  request.sampler.temperature = 0;
  request.logprobs = 3;
  request.prompt_logprobs = 2;
  const Answers answers = run(*model, {request, request}, {.step_tokens = 16});
  std::vector<TokenId> all = request.prompt;
  for (const TokenId id : answers.ids(0)) all.push_back(id);
  const std::vector<float> logits = full_logits(*model, all);
  const auto vocab = static_cast<size_t>(model->spec().vocab_size);
  const auto logprob = [&](size_t position, TokenId id) {
    double sum = 0;
    for (size_t k = 0; k < vocab; ++k) sum += std::exp(static_cast<double>(logits[position * vocab + k]));
    return static_cast<double>(logits[position * vocab + static_cast<size_t>(id)]) - std::log(sum);
  };
  const double tolerance = 1e-4;
  ASSERT_EQ(answers.prompts[0].size(), request.prompt.size() - 1);
  for (size_t i = 1; i < request.prompt.size(); ++i) {
    const ScoredToken& scored = answers.prompts[0][i - 1];
    EXPECT_EQ(scored.id, request.prompt[i]);
    EXPECT_NEAR(scored.logprob, logprob(i - 1, scored.id), tolerance);
    ASSERT_EQ(scored.top.size(), 2U);
    EXPECT_GE(scored.top[0].second, scored.top[1].second);
    EXPECT_NEAR(scored.top[1].second, logprob(i - 1, scored.top[1].first), tolerance);
  }
  for (size_t i = 0; i < answers.tokens[0].size(); ++i) {
    const ScoredToken& token = answers.tokens[0][i];
    ASSERT_EQ(token.top.size(), 3U);
    EXPECT_EQ(token.top[0].first, token.id);  // greedy
    EXPECT_NEAR(token.logprob, logprob(request.prompt.size() - 1 + i, token.id), tolerance);
  }
}

TEST(ModelRunner, BiasSoftCapAndFirstTokens) {
  const auto model = model_of(preset("llama-tiny"));
  Request plain;
  plain.prompt = prompt_of(*model, 5, 2);
  plain.max_tokens = 3;
  plain.sampler.temperature = 0;
  Request biased = plain;
  biased.bias = {{7, 1000.0F}};
  Request capped = plain;
  capped.softcap = 5;
  Request late = plain;
  const std::vector<TokenId> expected = reference(*model, plain);
  late.stop_tokens = {expected[0]};
  late.min_tokens = 2;
  const Answers answers = run(*model, {plain, biased, capped, late});
  EXPECT_EQ(answers.ids(0), expected);
  EXPECT_EQ(answers.ids(1), (std::vector<TokenId>{7, 7, 7}));
  EXPECT_EQ(answers.ids(2), expected);  // a soft-cap keeps the order
  ASSERT_GE(answers.ids(3).size(), 2U);
  EXPECT_NE(answers.ids(3)[0], expected[0]);
}

TEST(ModelRunner, CachesFitTheirMemory) {
  const auto model = model_of(preset("gemma-3-tiny"));
  ModelRunnerOptions options{.rows = 8, .page_size = 16};
  options.cache_bytes = 1 << 20;
  const ModelRunner runner(*model, options);
  EXPECT_LE(runner.cache_bytes(), options.cache_bytes);
  EXPECT_GT(runner.cache_bytes(), 0);
  EXPECT_EQ(runner.shape().groups.size(), 2U);  // a window and all tokens
  options.cache_bytes = 100;
  EXPECT_NE(testing::error_of([&] { ModelRunner(*model, options); }).find("give more memory"), std::string::npos);
}

TEST(ModelRunner, Buckets) {
  EXPECT_EQ(decode_bucket(1, 256), 1);
  EXPECT_EQ(decode_bucket(5, 256), 8);
  EXPECT_EQ(decode_bucket(17, 256), 24);
  EXPECT_EQ(decode_bucket(129, 160), 160);
  EXPECT_EQ(decode_bucket(300, 1000), 384);
}

TEST(ModelRunner, IdleTimeIsMeasuredOnRequest) {
  const auto model = model_of(preset("llama-tiny"));
  EXPECT_THROW(ModelRunner(*model, {.measures_idle = true}), Error);  // on a CPU
  ModelRunner runner(*model);
  EXPECT_THROW(runner.idle_share(), Error);
}

TEST(ModelRunner, GraphsOfOneRowReadShortPageTables) {
  constexpr int64_t kMost = 32768;
  int64_t graphs = 0;
  int64_t before = 0;
  for (int64_t length = 1; length <= kMost; ++length) {
    const int64_t context = decode_context(1, length, kMost);
    ASSERT_GE(context, length);
    ASSERT_LE(context, kMost);
    graphs += context != before ? 1 : 0;
    before = context;
  }
  EXPECT_EQ(graphs, 4);
  EXPECT_EQ(decode_context(1, 256, kMost), 256);  // one tile in ops::attention_output_step
  EXPECT_EQ(decode_context(1, 257, kMost), 1536);
  EXPECT_EQ(decode_context(1, 100, 200), 200);      // the page tables are not wider
  EXPECT_EQ(decode_context(8, 100, kMost), kMost);  // other kernels, which read the lengths only
}

}  // namespace
}  // namespace lamina::infer
