// Objectives: rates, reconstruction of the text from input and target, determinism, no target outside.
#include "lamina/data/objectives/objective_batches.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "lamina/data/token_writer.h"
#include "lamina/text/simple.h"
#include "support/error_of.h"

namespace lamina::data {
namespace {

namespace fs = std::filesystem;
using lamina::testing::error_of;
using Tokens = std::vector<int64_t>;

constexpr int64_t kText = 1000;  // ids below are text; the rest are special

ObjectiveVocabulary vocabulary_of(size_t specials) {
  ObjectiveVocabulary vocabulary;
  vocabulary.is_special.resize(static_cast<size_t>(kText) + specials);
  vocabulary.ends_sentence.resize(vocabulary.is_special.size());
  for (int64_t id = 0; id < kText; ++id) {
    vocabulary.texts.push_back(id);
    vocabulary.ends_sentence[static_cast<size_t>(id)] = id % 10 == 9;
  }
  for (size_t i = 0; i < specials; ++i) {
    vocabulary.tokens.push_back(kText + static_cast<int64_t>(i));
    vocabulary.is_special[static_cast<size_t>(kText) + i] = true;
  }
  return vocabulary;
}

Tokens text_of(int64_t length, uint64_t seed) {
  Dice dice({seed, 1});
  Tokens tokens;
  for (int64_t i = 0; i < length; ++i) tokens.push_back(dice.below(kText));
  return tokens;
}

TEST(Masked, HidesTheShareItSaysAndKeepsTheRest) {
  const ObjectiveVocabulary vocabulary = vocabulary_of(1);
  for (const double rate : {0.15, 0.3}) {
    const MaskedObjective objective{.rate = rate};
    int64_t scored = 0;
    int64_t masks = 0;
    int64_t kept = 0;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const Tokens tokens = text_of(500, seed);
      Dice dice({seed, 2});
      const CorruptedText text = mask_tokens(objective, vocabulary, tokens, dice);
      ASSERT_EQ(text.input.size(), tokens.size());
      for (size_t i = 0; i < tokens.size(); ++i) {
        if (text.target[i] == kIgnoreIndex) {
          EXPECT_EQ(text.input[i], tokens[i]);
          continue;
        }
        EXPECT_EQ(text.target[i], tokens[i]);
        ++scored;
        masks += text.input[i] == kText ? 1 : 0;
        kept += text.input[i] == tokens[i] ? 1 : 0;
        EXPECT_LE(text.input[i], kText);
      }
    }
    EXPECT_EQ(scored, std::llround(rate * 500) * 40);
    const auto share = [&](int64_t count) { return static_cast<double>(count) / static_cast<double>(scored); };
    EXPECT_NEAR(share(masks), 0.8, 4 * std::sqrt(0.8 * 0.2 / static_cast<double>(scored)));
    EXPECT_NEAR(share(kept), 0.1, 4 * std::sqrt(0.1 * 0.9 / static_cast<double>(scored)) + 0.001);
  }
}

TEST(Masked, NeverHidesSpecialTokens) {
  const ObjectiveVocabulary vocabulary = vocabulary_of(3);
  Tokens tokens = text_of(50, 3);
  for (size_t i = 0; i < tokens.size(); i += 2) tokens[i] = kText + 1;
  Dice dice({3, 3});
  const CorruptedText text =
      mask_tokens({.rate = 1.0, .mask_share = 1.0, .random_share = 0.0}, vocabulary, tokens, dice);
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(text.target[i], i % 2 == 0 ? kIgnoreIndex : tokens[i]);
    EXPECT_EQ(text.input[i], i % 2 == 0 ? tokens[i] : kText);
  }
}

/// The text that input and target of span corruption describe together.
Tokens restored(const CorruptedText& text) {
  std::map<int64_t, Tokens> spans;
  int64_t sentinel = -1;
  for (const int64_t id : text.target) {
    if (id >= kText) {
      sentinel = id;
    } else {
      spans[sentinel].push_back(id);
    }
  }
  Tokens tokens;
  for (const int64_t id : text.input) {
    if (id < kText) {
      tokens.push_back(id);
    } else {
      tokens.insert(tokens.end(), spans[id].begin(), spans[id].end());
    }
  }
  return tokens;
}

TEST(Span, InputAndTargetRestoreTheText) {
  const ObjectiveVocabulary vocabulary = vocabulary_of(100);
  for (const double density : {0.15, 0.5}) {
    const SpanObjective objective{.density = density, .mean_length = 3.0};
    for (const int64_t length : {2, 3, 10, 57, 200}) {
      const SpanCounts counts = span_counts(objective, length);
      for (uint64_t seed = 0; seed < 20; ++seed) {
        const Tokens tokens = text_of(length, seed);
        Dice dice({seed, 4});
        const CorruptedText text = corrupt_spans(objective, vocabulary, tokens, dice);
        EXPECT_EQ(restored(text), tokens);
        EXPECT_EQ(text.input.size() + text.target.size(), tokens.size() + 2 * static_cast<size_t>(counts.spans) + 1);
        EXPECT_LT(text.input[0], kText) << "text comes first";
        EXPECT_EQ(text.target.back(), kText + counts.spans);
      }
      if (length >= 57) {
        EXPECT_NEAR(static_cast<double>(counts.noise) / static_cast<double>(length), density, 0.02);
        EXPECT_NEAR(static_cast<double>(counts.noise) / static_cast<double>(counts.spans), 3.0, 0.5);
      }
    }
  }
}

TEST(Denoise, TheTargetIsTheTextAndTheInputHoldsTheRest) {
  const ObjectiveVocabulary vocabulary = vocabulary_of(2);
  int64_t masks = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Tokens tokens = text_of(200, seed);
    Dice dice({seed, 5});
    const CorruptedText text = add_noise({.permute_sentences = false}, vocabulary, tokens, dice);
    ASSERT_EQ(text.target.size(), tokens.size() + 1);
    EXPECT_EQ(text.target[0], kText + 1);
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), text.target.begin() + 1));
    EXPECT_LE(text.input.size(), tokens.size());
    // Without the masks the input is a subsequence of the text, 70 % of it.
    auto at = tokens.begin();
    int64_t kept = 0;
    for (const int64_t id : text.input) {
      if (id == kText) {
        ++masks;
        continue;
      }
      at = std::find(at, tokens.end(), id);
      ASSERT_NE(at, tokens.end());
      ++at;
      ++kept;
    }
    EXPECT_EQ(kept, 140);
  }
  EXPECT_NEAR(static_cast<double>(masks) / 50, 60.0 / 3.0, 2.0) << "Poisson spans of mean 3";
}

TEST(Denoise, PermutesWholeSentences) {
  const ObjectiveVocabulary vocabulary = vocabulary_of(2);
  Tokens tokens = Dice({8, 1}).different(200, kText);  // each token once
  Dice dice({8, 6});
  const CorruptedText text = add_noise({.rate = 0.005, .permute_sentences = true}, vocabulary, tokens, dice);
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), text.target.begin() + 1));
  Tokens input = text.input;
  std::erase(input, kText);
  EXPECT_EQ(input.size(), 199U);
  EXPECT_FALSE(std::equal(input.begin(), input.begin() + 100, tokens.begin()));
  // Neighbors within a sentence stay neighbors, except at the masked token.
  std::map<int64_t, int64_t> next;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) next[tokens[i]] = tokens[i + 1];
  int64_t broken = 0;
  for (size_t i = 0; i + 1 < input.size(); ++i) {
    const bool within = input[i] % 10 != 9 && input[i] != tokens.back();
    if (within && next[input[i]] != input[i + 1]) ++broken;
  }
  EXPECT_LE(broken, 1);
}

TEST(Fim, RearrangesAndLosesNothing) {
  const ObjectiveVocabulary vocabulary = vocabulary_of(3);
  int64_t arranged = 0;
  int64_t suffix_first = 0;
  constexpr int64_t kRows = 400;
  for (uint64_t seed = 0; seed < kRows; ++seed) {
    const Tokens tokens = text_of(30, seed);
    Dice dice({seed, 7});
    const Tokens out = fill_in_middle({.rate = 0.5, .spm_share = 0.5}, vocabulary, tokens, dice);
    if (out == tokens) continue;
    ++arranged;
    ASSERT_EQ(out.size(), tokens.size() + 3);
    ASSERT_EQ(out[0], kText);
    const auto suffix = std::find(out.begin(), out.end(), kText + 1);
    const auto middle = std::find(out.begin(), out.end(), kText + 2);
    ASSERT_LT(suffix, middle);
    Tokens whole(out.begin() + 1, suffix);  // prefix, empty for SPM
    suffix_first += whole.empty() ? 1 : 0;
    whole.insert(whole.end(), middle + 1, out.end());
    whole.insert(whole.end(), suffix + 1, middle);
    EXPECT_EQ(whole, tokens);
  }
  EXPECT_NEAR(static_cast<double>(arranged) / kRows, 0.5, 0.1);
  EXPECT_NEAR(static_cast<double>(suffix_first) / static_cast<double>(arranged), 0.5, 0.14);
}

class ObjectiveFile : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = (fs::path(::testing::TempDir()) / ("lamina_objective_" + std::to_string(::getpid()) + ".bin")).string();
    TokenWriter writer(path_, kText + 100, 0);
    std::vector<int32_t> ids;
    for (const int64_t id : text_of(5000, 1)) ids.push_back(static_cast<int32_t>(id));
    writer.write(ids);
    writer.end_document();
    writer.publish();
  }
  void TearDown() override { fs::remove(path_); }
  std::string path_;
};

TEST_F(ObjectiveFile, BatchesAreAFunctionOfSeedAndStep) {
  const std::vector<Objective> objectives = {PrefixObjective{}, FimObjective{},     MaskedObjective{},
                                             SpanObjective{},   DenoiseObjective{}, CausalObjective{}};
  for (const Objective& objective : objectives) {
    const ObjectiveVocabulary vocabulary = vocabulary_of(objective_tokens(objective).size());
    for (const Order order : {Order::random, Order::shuffled, Order::sequential}) {
      const BatchOptions options{.batch = 3, .length = 64, .order = order, .seed = 5};
      const ObjectiveBatches one(TokenFile::open(path_), options, objective, vocabulary);
      const ObjectiveBatches two(TokenFile::open(path_), options, objective, vocabulary);
      const Batch later = one.at(7);
      two.at(3);
      const Batch same = two.at(7);
      EXPECT_EQ(later.ids, same.ids) << objective_name(objective);
      EXPECT_EQ(later.targets, same.targets) << objective_name(objective);
      EXPECT_NE(later.ids, one.at(8).ids);
      ASSERT_EQ(later.ids.size(), 3U * 64U);
      ASSERT_EQ(later.targets.size(), 3U * 64U);
      const auto size = kText + static_cast<int64_t>(vocabulary.tokens.size());
      int64_t scored = 0;
      for (size_t i = 0; i < later.ids.size(); ++i) {
        EXPECT_TRUE(later.ids[i] >= 0 && later.ids[i] < size);
        if (later.targets[i] == kIgnoreIndex) continue;
        EXPECT_TRUE(later.targets[i] >= 0 && later.targets[i] < size);
        ++scored;
      }
      EXPECT_GT(scored, 0);
    }
  }
}

TEST_F(ObjectiveFile, OnlyTheRestOfAPrefixIsScored) {
  const PrefixObjective objective{.shortest = 0.25, .longest = 0.75};
  const ObjectiveBatches batches(TokenFile::open(path_), {.batch = 8, .length = 40, .seed = 2}, objective, {});
  for (int64_t step = 0; step < 20; ++step) {
    const Batch batch = batches.at(step);
    for (int64_t row = 0; row < 8; ++row) {
      int64_t given = 0;
      while (batch.targets[static_cast<size_t>(row * 40 + given)] == kIgnoreIndex) ++given;
      EXPECT_GE(given, 9);
      EXPECT_LE(given, 29);
      for (int64_t i = given; i + 1 < 40; ++i) {
        EXPECT_EQ(batch.targets[static_cast<size_t>(row * 40 + i)], batch.ids[static_cast<size_t>(row * 40 + i + 1)]);
      }
    }
  }
}

/// A decoder's row is input and target; every target is the next token, and none is within the input.
TEST_F(ObjectiveFile, ADecoderSeesInputThenTarget) {
  const ObjectiveVocabulary vocabulary = vocabulary_of(100);
  const ObjectiveBatches batches(TokenFile::open(path_), {.batch = 4, .length = 64, .seed = 3}, SpanObjective{},
                                 vocabulary);
  const int64_t taken = text_length(SpanObjective{}, 64);
  EXPECT_GT(taken, 50);
  for (int64_t row = 0; row < 4; ++row) {
    const Batch batch = batches.at(11);
    CorruptedText text;
    for (int64_t i = 0; i < 64; ++i) {
      const auto at = static_cast<size_t>(row * 64 + i);
      if (batch.targets[at] == kIgnoreIndex && text.target.empty()) text.input.push_back(batch.ids[at]);
      if (batch.targets[at] == kIgnoreIndex) continue;
      if (i < 63 && text.target.empty()) text.input.push_back(batch.ids[at]);
      text.target.push_back(batch.targets[at]);
      if (i < 63 && batch.targets[at + 1] != kIgnoreIndex) {
        EXPECT_EQ(batch.targets[at], batch.ids[at + 1]);
      }
    }
    EXPECT_EQ(static_cast<int64_t>(restored(text).size()), taken);
  }
}

TEST_F(ObjectiveFile, AnEncoderDecoderHasSourceAndTarget) {
  constexpr int64_t kStart = 7;
  constexpr int64_t kBegin = 8;
  constexpr int64_t kEnd = 9;
  for (const Objective& objective : {Objective(SpanObjective{}), Objective(DenoiseObjective{})}) {
    ObjectiveVocabulary vocabulary = vocabulary_of(objective_tokens(objective).size());
    vocabulary.begin = kBegin;
    vocabulary.end = kEnd;
    const BatchOptions options{.batch = 3, .length = 90, .order = Order::sequential, .seed = 5};
    const ObjectiveBatches batches(TokenFile::open(path_), options, objective, vocabulary, kStart);
    const SourceLengths lengths = source_lengths(objective, 90);
    EXPECT_LE(lengths.source + lengths.target, 90);
    EXPECT_GE(lengths.source + lengths.target, 86) << "no token of the row is wasted";
    for (const int64_t step : {0, 3, 11}) {
      const Batch batch = batches.at(step);
      ASSERT_EQ(batch.source_length, lengths.source);
      ASSERT_EQ(batch.length, lengths.target);
      ASSERT_EQ(batch.source.size(), static_cast<size_t>(3 * lengths.source));
      ASSERT_EQ(batch.ids.size(), static_cast<size_t>(3 * lengths.target));
      ASSERT_EQ(batch.targets.size(), batch.ids.size());
      for (int64_t row = 0; row < 3; ++row) {
        const auto* source = batch.source.data() + row * lengths.source;
        const auto* ids = batch.ids.data() + row * lengths.target;
        const auto* targets = batch.targets.data() + row * lengths.target;
        EXPECT_EQ(source[0], kBegin);
        EXPECT_EQ(source[lengths.source - 1], kEnd);
        EXPECT_EQ(ids[0], kStart);
        EXPECT_EQ(targets[lengths.target - 1], kEnd);
        EXPECT_TRUE(std::equal(ids + 1, ids + lengths.target, targets)) << "the decoder sees the target shifted";
        if (std::holds_alternative<DenoiseObjective>(objective)) {
          Tokens text(static_cast<size_t>(lengths.text));
          TokenFile::open(path_).read((step * 3 + row) * (lengths.text - 1), text);
          EXPECT_TRUE(std::equal(text.begin(), text.end(), targets));
        }
      }
    }
  }
  EXPECT_NE(error_of([&] {
              const ObjectiveBatches none(TokenFile::open(path_), {.batch = 1, .length = 32}, PrefixObjective{}, {}, 0);
            }).find("span or denoise"),
            std::string::npos);
}

TEST(Denoise, AllInputsHaveOneLength) {
  const ObjectiveVocabulary vocabulary = vocabulary_of(2);
  for (const double mean : {0.5, 1.0, 3.0, 7.5}) {
    const DenoiseObjective objective{.rate = 0.3, .mean_length = mean};
    const SpanCounts counts = span_counts(objective, 120);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      Dice dice({seed, 5});
      const CorruptedText text = add_noise(objective, vocabulary, text_of(120, seed), dice);
      EXPECT_EQ(text.input.size(), static_cast<size_t>(120 - counts.noise + counts.spans)) << mean;
      EXPECT_EQ(std::count(text.input.begin(), text.input.end(), kText), counts.spans);
    }
  }
}

TEST(Objective, RefusesWhatCannotWork) {
  EXPECT_NE(
      error_of([] { check_objective(MaskedObjective{.mask_share = 0.9, .random_share = 0.2}, 64); }).find("sum to"),
      std::string::npos);
  EXPECT_NE(error_of([] { check_objective(SpanObjective{.sentinels = 2}, 512); }).find("sentinels"), std::string::npos);
  EXPECT_NE(error_of([] { check_objective(PrefixObjective{.shortest = 0.8, .longest = 0.2}, 64); }).find("shortest"),
            std::string::npos);
  EXPECT_NE(error_of([] { check_objective(FimObjective{.prefix_token = "x", .suffix_token = "x"}, 64); }).find("twice"),
            std::string::npos);
  const auto tokenizer = text::byte_tokenizer({"<a>"});
  EXPECT_NE(error_of([&] { vocabulary_for(FimObjective{}, *tokenizer); }).find("<|fim_prefix|>"), std::string::npos);
  const ObjectiveVocabulary found = vocabulary_for(MaskedObjective{.mask_token = "<a>"}, *tokenizer);
  EXPECT_EQ(found.tokens, Tokens{256});
  EXPECT_EQ(found.texts.size(), 256U);
  EXPECT_TRUE(found.ends_sentence['.'] && found.ends_sentence['\n'] && !found.ends_sentence['a']);
}

}  // namespace
}  // namespace lamina::data
