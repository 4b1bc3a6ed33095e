// Generation with a cache, in batches and in turns equals plain full forwards of each prompt alone.
#include "lamina/infer/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "lamina/infer/evaluate.h"
#include "lamina/infer/text_stream.h"
#include "lamina/text/simple.h"
#include "nn/model_support.h"

namespace lamina::testing {
namespace {

using infer::Finish;
using infer::generate;
using infer::GenerateOptions;
using infer::Generation;
using text::TokenId;

std::vector<TokenId> prompt_of(size_t length, int64_t vocab, uint64_t seed) {
  const std::vector<int64_t> ids = random_ids(static_cast<int64_t>(length), vocab, seed);
  return {ids.begin(), ids.end()};
}

/// The answer's tokens are the likeliest of one full forward over prompt and answer.
void expect_greedy(nn::Model& model, std::vector<TokenId> ids, const std::vector<TokenId>& answer,
                   const std::string& what) {
  const auto begin = static_cast<int64_t>(ids.size()) - 1;
  ids.insert(ids.end(), answer.begin(), answer.end());
  const std::vector<int64_t> wide(ids.begin(), ids.end());
  const Tensor logits = model.logits(Tensor::from(wide, {1, static_cast<int64_t>(ids.size())}, model.device()));
  for (size_t i = 0; i < answer.size(); ++i) {
    const auto row = logits.slice(1, begin + static_cast<int64_t>(i), 1).to_vector<double>();
    // Where two tokens are as good as equal, rounding may choose.
    EXPECT_GE(row[static_cast<size_t>(answer[i])], *std::max_element(row.begin(), row.end()) - 1e-4)
        << what << " " << i;
  }
}

TEST(Generator, CachedEqualsUncachedForEveryTinyPreset) {
  const Device device = Device::cpu(2);
  for (const std::string& name : arch::preset_names()) {
    if (!name.ends_with("-tiny")) continue;
    const arch::ArchSpec spec = arch::resolve(arch::load_preset(name), name);
    if (!arch::is_causal(spec) || spec.encoder) continue;
    nn::Model model(spec, device);
    scramble(model);
    const std::vector<std::vector<TokenId>> prompts{prompt_of(5, spec.vocab_size, 1), prompt_of(9, spec.vocab_size, 2)};
    const std::vector<Generation> answers = generate(model, prompts, {.max_tokens = 6, .sampler = {.temperature = 0}});
    for (size_t i = 0; i < prompts.size(); ++i) {
      ASSERT_EQ(answers[i].ids.size(), 6U) << name;
      expect_greedy(model, prompts[i], answers[i].ids, str(name, " prompt ", i));
    }
  }
}

TEST(Generator, RowsOfABatchAreTheirOwn) {
  const Device device = Device::cpu(2);
  for (const char* preset : {"llama-tiny", "mistral-tiny", "hybrid-tiny"}) {
    nn::Model model(arch::resolve(arch::load_preset(preset)), device);
    scramble(model);
    std::vector<std::vector<TokenId>> prompts;
    for (const size_t length : {3, 17, 4, 1, 9}) prompts.push_back(prompt_of(length, 96, length));
    GenerateOptions options{.max_tokens = 12, .sampler = {.temperature = 0.9, .top_k = 20, .seed = 5}};
    options.stop_tokens = {3, 7, 11, 20, 33, 41, 58, 60, 77, 90};  // rows end at different times
    const std::vector<Generation> together = generate(model, prompts, options);
    options.cache = false;
    const std::vector<Generation> plain = generate(model, prompts, options);
    std::set<size_t> lengths;
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(together[i].ids, plain[i].ids) << preset << " row " << i;
      EXPECT_EQ(together[i].finish, plain[i].finish) << preset << " row " << i;
      lengths.insert(together[i].ids.size());
    }
    EXPECT_GT(lengths.size(), 1U) << preset;
    options.cache = true;
    EXPECT_EQ(generate(model, {prompts[0]}, options)[0].ids, together[0].ids) << preset;
    options.sampler.seed = 6;
    EXPECT_NE(generate(model, {prompts[1]}, options)[0].ids, together[1].ids) << preset;
  }
}

TEST(Generator, SamplesOnlyTheTokenizersIds) {
  nn::Model model(arch::resolve(arch::load_preset("llama-tiny")), Device::cpu(2));
  scramble(model);
  GenerateOptions options{.max_tokens = 24, .sampler = {.temperature = 2, .seed = 1}};
  const auto largest = [&] {
    const Generation answer = generate(model, {prompt_of(4, 96, 1)}, options)[0];
    return *std::max_element(answer.ids.begin(), answer.ids.end());
  };
  EXPECT_GE(largest(), 10);
  options.sampler.vocab_size = 10;
  EXPECT_LT(largest(), 10);
}

TEST(Generator, EndsForAReasonThatItTells) {
  const Device device = Device::cpu(2);
  nn::Model model(arch::resolve(arch::load_preset("llama-tiny")), device);
  scramble(model);
  const std::vector<TokenId> prompt = prompt_of(6, 96, 1);
  const GenerateOptions greedy{.max_tokens = 8, .sampler = {.temperature = 0}};
  const Generation all = generate(model, {prompt}, greedy)[0];
  EXPECT_EQ(all.finish, Finish::max_tokens);
  GenerateOptions options = greedy;
  options.stop_tokens = {all.ids[3]};
  const Generation stopped = generate(model, {prompt}, options)[0];
  EXPECT_EQ(stopped.finish, Finish::stop_token);
  const auto first = std::find(all.ids.begin(), all.ids.end(), all.ids[3]);
  EXPECT_EQ(stopped.ids, std::vector<TokenId>(all.ids.begin(), first));
  options = greedy;
  options.context = 9;
  const Generation full = generate(model, {prompt}, options)[0];
  EXPECT_EQ(full.finish, Finish::context);
  EXPECT_EQ(full.ids.size(), 3U);
  std::vector<TokenId> told;
  const Generation asked = generate(model, {prompt}, greedy, [&](size_t row, TokenId id) {
    EXPECT_EQ(row, 0U);
    told.push_back(id);
    return told.size() < 2;
  })[0];
  EXPECT_EQ(asked.finish, Finish::asked);
  EXPECT_EQ(asked.ids, told);
  EXPECT_EQ(asked.ids.size(), 2U);
  expect_error([&] { generate(model, {prompt, {}}, greedy); }, "prompt 2 has no tokens");
  expect_error([&] { generate(model, {{96}}, greedy); }, "holds token 96, the model has 96");
  expect_error([&] { generate(model, {prompt_of(64, 96, 1)}, greedy); }, "has 64 tokens, the context is 64");
  expect_error([&] { generate(model, {prompt}, {.max_tokens = 0}); }, "at least one");
}

TEST(Generator, ASessionRemembersItsTurns) {
  const Device device = Device::cpu(2);
  nn::Model model(arch::resolve(arch::load_preset("gemma-2-tiny")), device);
  scramble(model);
  const auto vocab = model.spec().vocab_size;
  const GenerateOptions greedy{.max_tokens = 4, .sampler = {.temperature = 0}};
  infer::Session session(model);
  std::vector<TokenId> all = prompt_of(5, vocab, 1);
  for (uint64_t turn = 0; turn < 3; ++turn) {
    std::vector<TokenId> more = turn == 0 ? all : prompt_of(3, vocab, 10 + turn);
    if (turn > 0) all.insert(all.end(), more.begin(), more.end());
    const Generation answer = session.turn(more, greedy);
    EXPECT_EQ(answer.ids, generate(model, {all}, greedy)[0].ids) << "turn " << turn;
    all.insert(all.end(), answer.ids.begin(), answer.ids.end());
    EXPECT_EQ(session.length(), static_cast<int64_t>(all.size()));
  }
  session.clear();
  EXPECT_EQ(session.turn(prompt_of(5, vocab, 1), greedy).ids, generate(model, {prompt_of(5, vocab, 1)}, greedy)[0].ids);
  expect_error([&] { session.turn(prompt_of(200, vocab, 1), greedy); }, "the context is");
}

// A window's room is bounded, and what it holds answers as if everything were held.
TEST(Generator, WindowsHoldNoMoreThanTheyNeed) {
  const Device device = Device::cpu(2);
  const std::string pattern = "layers[0].pattern[0].mixer.pattern.";
  for (const char* position : {"rope", "alibi", "t5"}) {
    const NamedSpec named = changed("llama-tiny", {pattern + "kind=window", pattern + "size=5", "context=400",
                                                   std::string("position.kind=") + position});
    nn::Model model(named.spec, device);
    scramble(model);
    const int64_t held = model.make_cache(1, 400).bytes();
    EXPECT_EQ(held, model.make_cache(1, 4000).bytes());
    EXPECT_EQ(held, model.make_cache(1, 21).bytes());
    const auto wide = in_double(model, device);
    const Tensor ids = ids_tensor(random_ids(2 * 90, 96), 2, device);
    const Tensor truth = wide->logits(ids);
    const double naive = 2 * naive_error(model, *wide, ids);
    nn::ModelCache cache = model.make_cache(2, 400);
    int64_t at = 0;
    for (const int64_t size : {3, 1, 16, 1, 17, 1, 2, 30, 1, 1, 1, 1, 1, 1, 1, 1, 1, 10}) {
      const Tensor ours = model.cached_logits(ids.slice(1, at, size).contiguous(), cache);
      expect_within(ours.to_vector<double>(), truth.slice(1, at, size).to_vector<double>(), naive,
                    str(named.name, " at ", at));
      at += size;
    }
    EXPECT_EQ(at, 90);
    // Back by a little, and on; back by a lot is refused.
    cache.truncate(0, 89);
    cache.truncate(1, 89);
    const Tensor again = model.cached_logits(ids.slice(1, 89, 1).contiguous(), cache);
    expect_within(again.to_vector<double>(), truth.slice(1, 89, 1).to_vector<double>(), naive, named.name);
    expect_error([&] { cache.truncate(0, 6); }, "has dropped tokens");
    cache.reset(0);
    nn::ModelCache one = cache.rows(0, 1);
    const Tensor fresh = model.cached_logits(ids.slice(0, 0, 1).slice(1, 0, 40).contiguous(), one);
    expect_within(fresh.to_vector<double>(), truth.slice(0, 0, 1).slice(1, 0, 40).to_vector<double>(), naive,
                  named.name);
  }
}

// Rows of different lengths slide on their own, are moved, and rest.
TEST(Generator, WindowsOfRaggedRows) {
  const Device device = Device::cpu(2);
  const std::string pattern = "layers[0].pattern[0].mixer.pattern.";
  nn::Model model(changed("llama-tiny", {pattern + "kind=window", pattern + "size=4", "context=200"}).spec, device);
  scramble(model);
  std::vector<std::vector<TokenId>> prompts;
  for (const size_t length : {50, 3, 41, 20}) prompts.push_back(prompt_of(length, 96, length));
  GenerateOptions options{.max_tokens = 40, .sampler = {.temperature = 0.8, .seed = 3}, .stop_tokens = {5, 50, 70}};
  const std::vector<Generation> cached = generate(model, prompts, options);
  options.cache = false;
  const std::vector<Generation> plain = generate(model, prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(cached[i].ids, plain[i].ids) << "row " << i;
}

TEST(Generator, RoundedWeightsChangeLittle) {
  const Device device = Device::cpu(2);
  for (const char* preset : {"llama-tiny", "gpt2-tiny", "mamba2-tiny", "qwen2-tiny"}) {
    const arch::ArchSpec spec = arch::resolve(arch::load_preset(preset), preset);
    nn::Model plain(spec, device);
    scramble(plain);
    const Tensor ids = ids_tensor(random_ids(24, spec.vocab_size), 2, device);
    const std::vector<double> truth = plain.logits(ids).to_vector<double>();
    const double most = largest_magnitude(truth);
    double last = 0;
    for (const char* format : {"bf16", "q8", "q4"}) {
      nn::Model model(spec, device);
      scramble(model);
      model.store_weights(nn::parse_weight_formats(format));
      const double error = largest_error(model.logits(ids).to_vector<double>(), truth) / most;
      EXPECT_GT(error, 0) << preset << " " << format;
      EXPECT_LT(error, std::string(format) == "q4" ? 0.5 : 0.06) << preset << " " << format;
      if (std::string(format) == "q4") {
        EXPECT_GT(error, last) << preset;
      }
      last = error;
    }
  }
  const nn::WeightFormats formats = nn::parse_weight_formats("q4,head.=f32,layers.0.=q8");
  EXPECT_EQ(formats.of("layers.1.mixer.q.weight"), nn::WeightFormat::q4);
  EXPECT_EQ(formats.of("layers.0.mixer.q.weight"), nn::WeightFormat::q8);
  EXPECT_EQ(formats.of("head.weight"), nn::WeightFormat::f32);
  EXPECT_EQ(nn::parse_weight_formats("q4").of("head.weight"), nn::WeightFormat::q8);
  expect_error([] { nn::parse_weight_formats("q5"); }, "expected f32");
  expect_error([] { nn::parse_weight_formats("q8,head"); }, "head.=q8");
}

TEST(TextStream, ShowsWholeCharactersAndStops) {
  const auto tokenizer = text::byte_tokenizer();
  const std::string text = "añ€😀 stop, STOP here";
  infer::TextStream stream(*tokenizer, {"STOP"});
  std::string all;
  for (const TokenId id : tokenizer->encode(text)) {
    const std::string piece = stream.push(id);
    // A piece never begins inside a character.
    if (!piece.empty()) {
      EXPECT_NE(static_cast<uint8_t>(piece[0]) & 0xc0U, 0x80U);
    }
    all += piece;
  }
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(all + stream.finish(), "añ€😀 stop, ");
  infer::TextStream behind(*tokenizer);
  behind.see_prompt(tokenizer->encode("before"));
  EXPECT_EQ(behind.push(' ') + behind.push('x') + behind.finish(), " x");
  infer::TextStream broken(*tokenizer);
  EXPECT_EQ(broken.push(0xe2), "");
  EXPECT_EQ(broken.finish(), "\xe2");
}

/// −log softmax(logits)[target], in double from the logits of a full forward.
double plain_loss(nn::Model& model, const std::vector<TokenId>& ids, int64_t begin, int64_t at) {
  const std::vector<int64_t> read(ids.begin() + begin, ids.begin() + at);
  const auto length = static_cast<int64_t>(read.size());
  const std::vector<double> z =
      model.logits(Tensor::from(read, {1, length}, model.device())).slice(1, length - 1, 1).to_vector<double>();
  double sum = 0;
  for (const double value : z) sum += std::exp(value);
  return std::log(sum) - z[static_cast<size_t>(ids[static_cast<size_t>(at)])];
}

TEST(Evaluate, EveryTokenOnceFromItsWindow) {
  const Device device = Device::cpu(2);
  nn::Model model(arch::resolve(arch::load_preset("llama-tiny")), device);
  scramble(model);
  const std::vector<TokenId> ids = prompt_of(38, 96, 4);
  for (const int64_t stride : {8, 3, 1}) {
    const infer::Evaluation found =
        infer::evaluate(model, ids, {.context = 8, .stride = stride, .lengths = {0, 2, 5, 9}});
    double total = 0;
    double early = 0;
    int64_t few = 0;
    for (int64_t at = 1; at < 38; ++at) {
      // The first window that predicts the token: windows begin at multiples of the stride.
      const int64_t begin = at <= 8 ? 0 : (at - 8 + stride - 1) / stride * stride;
      const double loss = plain_loss(model, ids, begin, at);
      total += loss;
      if (at - begin < 2) {
        early += loss;
        ++few;
      }
    }
    EXPECT_EQ(found.tokens, 37);
    EXPECT_NEAR(found.total, total, 1e-3) << "stride " << stride;
    ASSERT_EQ(found.by_length.size(), 3U);
    EXPECT_EQ(found.by_length[0].tokens, few);
    EXPECT_NEAR(found.by_length[0].loss * static_cast<double>(few), early, 1e-3);
    EXPECT_EQ(found.by_length[0].tokens + found.by_length[1].tokens + found.by_length[2].tokens, 37);
    EXPECT_NEAR(found.perplexity(), std::exp(total / 37), 1e-2 * found.perplexity());
    EXPECT_NEAR(found.bits_per_byte(50), total / std::log(2.0) / 50, 1e-3);
  }
  EXPECT_EQ(infer::evaluate(model, prompt_of(2, 96, 1)).tokens, 1);
  expect_error([&] { infer::evaluate(model, prompt_of(1, 96, 1)); }, "at least two");
  expect_error([&] { infer::evaluate(model, ids, {.context = 4, .stride = 5}); }, "a stride of 5");
  expect_error([&] { infer::evaluate(model, std::vector<TokenId>{1, 200}); }, "token 200");
}

}  // namespace
}  // namespace lamina::testing
