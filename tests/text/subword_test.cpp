// WordPiece and Unigram: the same ids as other libraries (tests/golden/tokenizers), rules of the algorithms, training.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "lamina/base/files.h"
#include "lamina/text/load.h"
#include "lamina/text/spec.h"
#include "lamina/text/stream_decoder.h"
#include "lamina/text/train_unigram.h"
#include "lamina/text/train_wordpiece.h"
#include "support/error_of.h"

namespace lamina::text {
namespace {

using lamina::testing::error_of;
using nlohmann::json;
using Ids = std::vector<TokenId>;

const std::string kFolder = std::string(LAMINA_GOLDEN_DIR) + "/tokenizers/";

std::vector<std::string> golden_texts() {
  std::vector<std::string> all = json::parse(read_text(kFolder + "texts.json"));
  const std::vector<std::string> more = json::parse(read_text(kFolder + "encoder_texts.json"));
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Ids ids_of(const Tokenizer& tokenizer, const std::string& text, bool special = true) {
  Ids ids;
  tokenizer.encode(text, ids, special);
  return ids;
}

/// `except`: a text whose ids are known to differ.
void expect_golden(const Tokenizer& tokenizer, const std::string& name, bool special = true, size_t except = SIZE_MAX) {
  const std::vector<std::string> texts = golden_texts();
  const std::vector<Ids> expected = json::parse(read_text(kFolder + name + ".ids.json"));
  ASSERT_EQ(expected.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i == except) continue;
    EXPECT_EQ(ids_of(tokenizer, texts[i], special), expected[i]) << name << ", text " << i << ": " << json(texts[i]);
    StreamDecoder decoder(tokenizer, true);
    std::string streamed;
    for (const TokenId id : expected[i]) streamed += decoder.push(id);
    EXPECT_EQ(streamed + decoder.finish(), tokenizer.decode(expected[i])) << name << ", text " << i;
  }
}

std::unique_ptr<Tokenizer> again(const Tokenizer& tokenizer) { return parse_tokenizer(tokenizer.to_json(), "written"); }

TEST(WordPiece, GivesTheIdsOfBert) {
  const std::string folder = std::string(LAMINA_SOURCE_DIR) + "/build/tokenizers/bert";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder << ": run tools/fetch-tokenizers bert";
  const auto tokenizer = load_tokenizer(folder);
  expect_golden(*tokenizer, "bert");
  expect_golden(*again(*tokenizer), "bert");
  EXPECT_EQ(tokenizer->bos(), TokenId{101});
  EXPECT_EQ(tokenizer->eos(), TokenId{102});
  EXPECT_EQ(tokenizer->appended(), tokenizer->eos());
  EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, "Unaffable, isn't it?")), "unaffable, isn ' t it?");
}

TokenizerSpec small_wordpiece(const std::vector<std::string>& entries) {
  TokenizerSpec spec;
  spec.algorithm = Algorithm::wordpiece;
  spec.symbols = Symbols::characters;
  spec.continuation = "##";
  for (const std::string& entry : entries) spec.vocab.push_back({VocabEntry::Kind::ordinary, entry});
  spec.unknown = 0;
  return spec;
}

TEST(WordPiece, TakesTheLongestMatchAndGivesUpOnTheWholeWord) {
  const auto tokenizer = make_tokenizer(
      small_wordpiece({"[UNK]", "un", "##aff", "##able", "##a", "una", "##f", "able", "##ffab"}), "small");
  EXPECT_EQ(tokenizer->encode("unaffable"), (Ids{0})) << "una, ##ffab, then no ##le: greedy does not go back";
  EXPECT_EQ(tokenizer->encode("unable"), (Ids{0})) << "una leaves ##ble, which is no entry";
  EXPECT_EQ(tokenizer->encode("unaf"), (Ids{5, 6}));
  EXPECT_EQ(tokenizer->encode("able"), (Ids{7}));
  EXPECT_EQ(tokenizer->token(2), "##aff");
  EXPECT_EQ(tokenizer->decode(Ids{1, 2, 7}), "unaff able");
}

TEST(WordPiece, WordsThatAreTooLongAreUnknown) {
  TokenizerSpec spec = small_wordpiece({"[UNK]", "é", "##é"});
  spec.longest_word = 5;
  const auto tokenizer = make_tokenizer(spec, "small");
  EXPECT_EQ(tokenizer->encode("ééééé"), (Ids{1, 2, 2, 2, 2})) << "counted in characters, not bytes";
  EXPECT_EQ(tokenizer->encode("éééééé"), (Ids{0}));
}

TEST(WordPiece, ReadsAVocabularyOfLines) {
  const std::string folder = ::testing::TempDir() + "lamina_vocab_txt";
  std::filesystem::create_directories(folder);
  write_text(folder + "/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nAb\n##c\nab\n");
  EXPECT_EQ(load_tokenizer(folder)->encode("Abc ABC"), (Ids{6, 5, 6, 5}));
  write_text(folder + "/tokenizer_config.json", R"({"do_lower_case": false})");
  const auto cased = load_tokenizer(folder);
  EXPECT_EQ(cased->encode("Abc abc"), (Ids{4, 5, 6, 5}));
  EXPECT_EQ(cased->bos(), TokenId{2}) << "a config without names keeps [CLS]";
  EXPECT_EQ(cased->appended(), TokenId{3});
  // What ends a text for the model need not be the EOS token of generation.
  write_text(folder + "/tokenizer_config.json", R"({"do_lower_case": false, "eos_token": "[PAD]"})");
  const auto other = load_tokenizer(folder);
  EXPECT_EQ(other->eos(), TokenId{0});
  EXPECT_EQ(other->appended(), TokenId{3});
  EXPECT_EQ(again(*other)->appended(), TokenId{3});
  write_text(folder + "/tokenizer_config.json", R"({"do_lower_case": false})");
  write_text(folder + "/vocab.txt", "[UNK]\n[CLS]\n[SEP]\n\nab\n");
  EXPECT_NE(error_of([&] { load_tokenizer(folder); }).find("line 4 is empty"), std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST(Unigram, GivesTheIdsOfSentencePiece) {
  const auto tokenizer = load_tokenizer(kFolder + "spm_unigram.model");
  expect_golden(*tokenizer, "spm_unigram", false);
  // For a tokenizer.json, the Hugging Face library maps characters by grapheme. It also reads the text "<0x41>" as a
  // byte (text 29); ours never does.
  expect_golden(*again(*tokenizer), "spm_unigram_json", true, 29);
}

TEST(Unigram, GivesTheIdsOfWordsWithAPrefix) {
  const auto tokenizer = load_tokenizer(kFolder + "unigram_words.json");
  expect_golden(*tokenizer, "unigram_words");
  expect_golden(*again(*tokenizer), "unigram_words");
  EXPECT_FALSE(tokenizer->bos());
  EXPECT_EQ(tokenizer->appended(), tokenizer->eos());
  EXPECT_EQ(tokenizer->token(*tokenizer->eos()), "</s>");
}

/// The best sum of scores over all segmentations, by plain recursion.
double best_score(std::string_view text, const std::vector<std::pair<std::string, double>>& entries, double unknown) {
  if (text.empty()) return 0;
  double best = -std::numeric_limits<double>::infinity();
  bool covered = false;
  for (const auto& [entry, score] : entries) {
    if (!text.starts_with(entry)) continue;
    covered = covered || entry.size() == 1;
    best = std::max(best, score + best_score(text.substr(entry.size()), entries, unknown));
  }
  if (!covered) best = std::max(best, unknown + best_score(text.substr(1), entries, unknown));
  return best;
}

TEST(Unigram, FindsTheBestOfAllSegmentations) {
  const std::vector<std::pair<std::string, double>> entries = {
      {"a", -3.0}, {"b", -2.5}, {"ab", -4.0}, {"ba", -4.7}, {"aba", -6.2}, {"bab", -7.1}, {"c", -5.0}, {"abc", -7.0}};
  TokenizerSpec spec;
  spec.algorithm = Algorithm::unigram;
  spec.symbols = Symbols::characters;
  spec.unknown_score = -20;
  spec.vocab.push_back({VocabEntry::Kind::opaque, "<unk>"});
  spec.scores.push_back(0);
  for (const auto& [entry, score] : entries) {
    spec.vocab.push_back({VocabEntry::Kind::ordinary, entry});
    spec.scores.push_back(score);
  }
  spec.unknown = 0;
  const auto tokenizer = make_tokenizer(spec, "small");
  uint32_t state = 7;
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (int i = 0; i < 9; ++i) text += "abcx"[(state = state * 1664525 + 1013904223) >> 30];
    double sum = 0;
    for (const TokenId id : tokenizer->encode(text)) sum += id == 0 ? -20 : spec.scores[static_cast<size_t>(id)];
    EXPECT_NEAR(sum, best_score(text, entries, -20), 1e-9) << text;
  }
}

TEST(Unigram, RefusesDamagedFiles) {
  const std::string head = R"({"model": {"type": "Unigram", "vocab": )";
  const auto message = [&](const std::string& rest) { return error_of([&] { parse_tokenizer(head + rest, "file"); }); };
  EXPECT_NE(message(R"([]}})").find("vocab is empty"), std::string::npos);
  EXPECT_NE(message(R"([["a", 1e400]]}})").find("expected a number"), std::string::npos);
  EXPECT_NE(message(R"([["a", -1], ["b"]]}})").find("expected ','"), std::string::npos);
  EXPECT_NE(message(R"([["a", -1]], "unk_id": 5}})").find("unk_id is 5"), std::string::npos);
  EXPECT_NE(
      message(R"([["a", -1]]}, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAA"}})").find("cut off"),
      std::string::npos);
}

/// Enough text that the pieces of a word occur often.
std::string corpus_text() {
  std::string text;
  for (int i = 0; i < 20; ++i) text += read_text(kFolder + "corpus.txt");
  return text;
}

TEST(TrainWordPiece, IsReadByTheOtherLibraryWithTheSameIds) {
  const std::string corpus = read_text(kFolder + "corpus.txt");
  const auto tokenizer = train_wordpiece({corpus}, {.vocab_size = 300});
  expect_golden(*tokenizer, "trained_wordpiece");
  expect_golden(*again(*tokenizer), "trained_wordpiece");
  EXPECT_EQ(tokenizer->id_of("[MASK]"), TokenId{4});
  EXPECT_EQ(tokenizer->to_json(), train_wordpiece({corpus}, {.vocab_size = 300})->to_json());
}

/// "ab" and "cd" occur equally often, but c and d occur nowhere else: their merge has the higher likelihood.
TEST(TrainWordPiece, MergesByLikelihood) {
  std::string corpus;
  for (int i = 0; i < 10; ++i) corpus += "ab cd a b ";
  const auto tokenizer = train_wordpiece({corpus}, {.vocab_size = 5 + 5 + 1});
  EXPECT_TRUE(tokenizer->id_of("cd"));
  EXPECT_FALSE(tokenizer->id_of("ab"));
}

TEST(TrainUnigram, IsReadByTheOtherLibraryWithTheSameIds) {
  const std::string corpus = read_text(kFolder + "corpus.txt");
  const auto tokenizer = train_unigram({corpus}, {.vocab_size = 300});
  expect_golden(*tokenizer, "trained_unigram");
  expect_golden(*again(*tokenizer), "trained_unigram");
  EXPECT_EQ(again(*tokenizer)->to_json(), tokenizer->to_json());  // so that a run and its token files have one identity
  EXPECT_EQ(tokenizer->vocab_size(), 300);
  EXPECT_EQ(tokenizer->to_json(), train_unigram({corpus}, {.vocab_size = 300})->to_json());
}

TEST(TrainUnigram, LearnsTheWordsOfATextAndCoversItsCharacters) {
  const std::string corpus = corpus_text();
  const auto large = train_unigram({corpus}, {.vocab_size = 400});
  const auto small = train_unigram({corpus}, {.vocab_size = 250});
  EXPECT_LT(large->encode(corpus).size(), small->encode(corpus).size());
  for (const TokenId id : small->encode(corpus)) EXPECT_NE(small->token(id), "<unk>");
  const auto bytes = train_unigram({corpus}, {.vocab_size = 600, .byte_fallback = true});
  for (const std::string text : {"plain words", "snow ☃ man", "\U0001F600"}) {
    EXPECT_EQ(bytes->decode(bytes->encode(text)), text);
  }
}

}  // namespace
}  // namespace lamina::text
