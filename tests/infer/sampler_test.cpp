// Sampling against plain loops from the definitions in Hugging Face's logits_process.py.
#include "lamina/infer/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "lamina/infer/stop_strings.h"
#include "support/close.h"

namespace lamina::testing {
namespace {

using infer::Candidate;
using infer::Sampler;
using infer::SamplerOptions;
using infer::StopStrings;

std::vector<float> some_logits(size_t count, uint64_t seed) {
  std::vector<float> logits;
  for (size_t i = 0; i < count; ++i) {
    const auto word = philox_word({seed, 7}, i);
    logits.push_back(static_cast<float>(word) * 0x1p-29F - 4.0F);
  }
  return logits;
}

std::vector<double> softmax(const std::vector<double>& z) {
  double sum = 0;
  for (const double value : z) sum += std::exp(value);
  std::vector<double> p;
  for (const double value : z) p.push_back(std::exp(value) / sum);
  return p;
}

/// Probabilities of all tokens, 0 where one is filtered out: each filter sets logits to −∞, as the library does.
std::vector<double> reference(const std::vector<float>& logits, const SamplerOptions& o,
                              const std::vector<int>& seen = {}) {
  std::vector<double> z(logits.begin(), logits.end());
  for (const int id : seen) {
    double& value = z[static_cast<size_t>(id)];
    value = value < 0 ? value * o.repetition_penalty : value / o.repetition_penalty;
  }
  for (double& value : z) value /= o.temperature;
  if (o.top_k > 0) {
    std::vector<double> sorted = z;
    std::sort(sorted.rbegin(), sorted.rend());
    const double least = sorted[std::min(static_cast<size_t>(o.top_k), sorted.size()) - 1];
    for (double& value : z) value = value < least ? -INFINITY : value;
  }
  if (o.top_p < 1) {
    const std::vector<double> p = softmax(z);
    std::vector<size_t> order(z.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return z[a] < z[b]; });
    double sum = 0;
    for (size_t i = 0; i + 1 < order.size(); ++i) {
      sum += p[order[i]];
      if (sum <= 1 - o.top_p) z[order[i]] = -INFINITY;
    }
  }
  if (o.min_p > 0) {
    const std::vector<double> p = softmax(z);
    const double most = *std::max_element(p.begin(), p.end());
    for (size_t i = 0; i < z.size(); ++i) z[i] = p[i] < o.min_p * most ? -INFINITY : z[i];
  }
  if (o.typical_p < 1) {
    const std::vector<double> p = softmax(z);
    double entropy = 0;
    for (const double value : p) entropy -= value > 0 ? value * std::log(value) : 0;
    std::vector<std::pair<double, size_t>> order;
    for (size_t i = 0; i < p.size(); ++i) order.emplace_back(std::abs(-std::log(p[i]) - entropy), i);
    std::sort(order.begin(), order.end());
    double sum = 0;
    size_t last = 0;
    for (const auto& [distance, i] : order) last += (sum += p[i]) < o.typical_p ? 1 : 0;
    const double farthest = order[std::min(last, order.size() - 1)].first;
    for (const auto& [distance, i] : order) z[i] = distance > farthest ? -INFINITY : z[i];
  }
  return softmax(z);
}

std::vector<double> spread(const std::vector<Candidate>& list, size_t vocab) {
  std::vector<double> p(vocab, 0.0);
  for (const Candidate& c : list) p[static_cast<size_t>(c.id)] += c.probability;
  return p;
}

TEST(Sampler, ProbabilitiesAreThoseOfTheDefinitions) {
  const std::vector<SamplerOptions> all{
      {},
      {.temperature = 0.7},
      {.temperature = 1.6, .top_k = 7},
      {.top_k = 500},
      {.top_p = 0.9},
      {.top_p = 0.05},
      {.min_p = 0.2},
      {.typical_p = 0.3},
      {.typical_p = 0.95},
      {.temperature = 0.5, .top_k = 40, .top_p = 0.8, .min_p = 0.01, .typical_p = 0.7}};
  for (const size_t vocab : {1, 2, 97}) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const std::vector<float> logits = some_logits(vocab, seed);
      for (const SamplerOptions& options : all) {
        const std::vector<double> ours = spread(Sampler(options).candidates(logits), vocab);
        const std::vector<double> truth = reference(logits, options);
        for (size_t i = 0; i < vocab; ++i) {
          // exp in f32, of differences below 2^4: 2^-24 · 2^4 relative, and its sum.
          EXPECT_NEAR(ours[i], truth[i], 4e-6) << "token " << i << " of " << vocab;
          EXPECT_EQ(ours[i] > 0, truth[i] > 0) << "token " << i << " of " << vocab;
        }
      }
    }
  }
}

TEST(Sampler, PenaltiesKnowPromptAndAnswer) {
  const std::vector<float> logits{2.0F, -1.0F, 0.5F, 1.9F};
  const SamplerOptions options{.repetition_penalty = 1.5};
  Sampler sampler(options);
  sampler.see_prompt(std::vector<text::TokenId>{0, 1, 1});
  const std::vector<double> ours = spread(sampler.candidates(logits), 4);
  const std::vector<double> truth = reference(logits, options, {0, 1});
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(ours[i], truth[i], 1e-6);
  // Greedy: 0 comes, is penalised to 1.0 once and 0.5 twice, and 3 comes between.
  Sampler greedy({.presence_penalty = 0.25, .frequency_penalty = 0.75, .temperature = 0});
  greedy.see_prompt(std::vector<text::TokenId>{3});
  EXPECT_EQ(greedy.next(logits), 0);
  EXPECT_EQ(greedy.next(logits), 3);
  EXPECT_EQ(greedy.next(logits), 0);
  EXPECT_EQ(greedy.next(logits), 3);
  EXPECT_EQ(greedy.next(logits), 2);
}

TEST(Sampler, DrawsFollowTheProbabilitiesAndTheSeed) {
  const std::vector<float> logits = some_logits(12, 3);
  const SamplerOptions options{.top_k = 5, .seed = 11};
  const std::vector<double> truth = reference(logits, options);
  constexpr int kDraws = 20000;
  Sampler sampler(options);
  Sampler again(options);
  Sampler other(options, 1);
  std::map<int, int> counts;
  int differ = 0;
  for (int i = 0; i < kDraws; ++i) {
    const text::TokenId id = sampler.next(logits);
    ++counts[id];
    EXPECT_EQ(again.next(logits), id);
    differ += other.next(logits) != id ? 1 : 0;
  }
  EXPECT_GT(differ, kDraws / 4);
  for (size_t i = 0; i < truth.size(); ++i) {
    const double deviation = std::sqrt(truth[i] * (1 - truth[i]) * kDraws);
    EXPECT_NEAR(counts[static_cast<int>(i)], truth[i] * kDraws, 5 * deviation + 1e-9) << "token " << i;
  }
}

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) {
  Sampler greedy({.temperature = 0});
  EXPECT_EQ(greedy.next(std::vector<float>{1, 3, 3, -INFINITY}), 1);
  EXPECT_EQ(greedy.candidates(std::vector<float>{1, 3, 3, 2}).at(0).id, 1);
  for (const std::vector<float>& broken : {std::vector<float>{1, NAN, 0}, {NAN, 1}, {2, NAN, 3}}) {
    expect_error([&] { greedy.next(broken); }, "is not a number");
    expect_error([&] { Sampler({}).next(broken); }, "is not a number");
  }
}

TEST(Sampler, PaddingOfTheVocabularyIsNeverSampled) {
  std::vector<float> logits = some_logits(40, 3);
  for (size_t i = 30; i < logits.size(); ++i) logits[i] = 50;  // padding that the model prefers
  logits[39] = std::nanf("");                                  // padding may be NaN, too
  const std::vector<float> known(logits.begin(), logits.begin() + 30);
  for (const double temperature : {0.0, 1.0}) {
    SamplerOptions options{.temperature = temperature, .seed = 5};
    Sampler plain(options);
    options.vocab_size = 30;
    Sampler limited(options);
    for (int i = 0; i < 50; ++i) EXPECT_EQ(limited.next(logits), plain.next(known));
  }
  SamplerOptions more{.temperature = 0, .vocab_size = 100};  // more than the model has
  EXPECT_EQ(Sampler(more).next(known), Sampler({.temperature = 0}).next(known));
}

TEST(Sampler, OptionsOutOfRangeAreRefused) {
  expect_error([] { Sampler({.temperature = -1}); }, "temperature");
  expect_error([] { Sampler({.top_p = 0}); }, "top-p");
  expect_error([] { Sampler({.min_p = 1.5}); }, "min-p");
  expect_error([] { Sampler({.typical_p = 0}); }, "typical");
  expect_error([] { Sampler({.top_k = -1}); }, "top-k");
  expect_error([] { Sampler({.repetition_penalty = 0}); }, "repetition");
}

/// The text that the filter lets through if it arrives in pieces of `size` bytes.
std::string shown(const std::string& text, const std::vector<std::string>& stops, size_t size) {
  StopStrings filter(stops);
  std::string all;
  for (size_t at = 0; at < text.size(); at += size) all += filter.push(text.substr(at, size));
  return all + filter.finish();
}

TEST(StopStrings, NothingOfThemIsEverShown) {
  const std::vector<std::string> stops{"END", "\n\n", "ENDS NEVER", "aab"};
  for (size_t size = 1; size < 9; ++size) {
    EXPECT_EQ(shown("one EN two END three", stops, size), "one EN two ") << size;
    EXPECT_EQ(shown("a\nb\n\nc", stops, size), "a\nb") << size;
    EXPECT_EQ(shown("xaaab", stops, size), "xa") << size;
    EXPECT_EQ(shown("nothing here E", stops, size), "nothing here E") << size;
    EXPECT_EQ(shown("END", stops, size), "") << size;
    EXPECT_EQ(shown("plain", {}, size), "plain") << size;
  }
  StopStrings filter({"stop"});
  EXPECT_EQ(filter.push("a st"), "a ");
  EXPECT_FALSE(filter.stopped());
  EXPECT_EQ(filter.push("op b"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.push("more"), "");
  EXPECT_EQ(filter.finish(), "");
  EXPECT_EQ(filter.found(), "stop");
  StopStrings two({"b", "ab"});
  two.push("xab");
  EXPECT_EQ(two.found(), "ab") << "the first one in the text, not in the list";
  expect_error([] { StopStrings({""}); }, "empty");
}

}  // namespace
}  // namespace lamina::testing
