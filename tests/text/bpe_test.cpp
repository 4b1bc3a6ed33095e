// BPE merging against a plain implementation of the rule, invariants for any bytes, and errors of malformed files.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "lamina/base/files.h"
#include "lamina/text/load.h"
#include "lamina/text/simple.h"
#include "lamina/text/spec.h"
#include "lamina/text/stream_decoder.h"
#include "lamina/text/train_bpe.h"
#include "support/error_of.h"

namespace lamina::text {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

std::string corpus() { return read_text(std::string(LAMINA_GOLDEN_DIR) + "/tokenizers/corpus.txt"); }

std::string random_bytes(std::mt19937& random, size_t length) {
  static const std::vector<std::string> common = {" ",        "the",           "\n", "'s", "12", "é", "漢",
                                                  "👍🏽", "<|endoftext|>", "  "};
  std::string text;
  while (text.size() < length) {
    text += random() % 3 == 0 ? std::string(1, static_cast<char>(random() % 256)) : common[random() % common.size()];
  }
  return text;
}

/// Byte pair encoding by its definition: repeatedly merges the first pair with the lowest rank, until no pair has a
/// merge.
std::vector<std::string> merged_by_definition(std::vector<std::string> symbols, const json& merges) {
  for (;;) {
    size_t best = symbols.size();
    size_t best_rank = merges.size();
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank][0] == symbols[i] && merges[rank][1] == symbols[i + 1]) {
          best = i;
          best_rank = rank;
        }
      }
    }
    if (best == symbols.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(Bpe, MergesAsDefined) {
  // The text has only letters, so it is one piece, and every byte stands for itself.
  std::string text;
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) text += static_cast<char>('a' + random() % 3);
  const auto tokenizer = train_bpe({text.substr(0, 1500), text.substr(700)}, {320, "gpt2", {}, {}});
  const json merges = json::parse(tokenizer->to_json())["model"]["merges"];
  ASSERT_GT(merges.size(), 30U);
  for (const size_t length :
       {1U, 2U, 3U, 7U, 20U, 47U, 48U, 49U, 50U, 120U}) {  // beyond 48 symbols merging uses a queue
    const std::string word = text.substr(random() % 1000, length);
    std::vector<std::string> symbols;
    for (const char c : word) symbols.emplace_back(1, c);
    std::vector<std::string> tokens;
    for (const TokenId id : tokenizer->encode(word)) tokens.push_back(tokenizer->token(id));
    EXPECT_EQ(tokens, merged_by_definition(symbols, merges)) << word;
  }
}

TEST(Bpe, DecodingGivesBackAnyBytes) {
  std::mt19937 random(1);
  for (const char* pattern : {"gpt2", "cl100k", "one-digit", "o200k"}) {
    const auto tokenizer = train_bpe({corpus()}, {400, pattern, {"<|endoftext|>"}, {}});
    for (int round = 0; round < 300; ++round) {
      const std::string text = random_bytes(random, random() % 80);
      for (const bool special : {false, true}) {
        Ids ids;
        tokenizer->encode(text, ids, special);
        ASSERT_EQ(tokenizer->decode(ids), text) << pattern;
      }
    }
  }
}

TEST(Bpe, TheFileBringsItBack) {
  const auto tokenizer = train_bpe({corpus()}, {420, "cl100k", {"<|endoftext|>", "<|pad|>"}, {}});
  EXPECT_EQ(tokenizer->vocab_size(), 420);
  const auto again = parse_tokenizer(tokenizer->to_json(), "written");
  EXPECT_EQ(again->to_json(), tokenizer->to_json());
  EXPECT_EQ(again->encode(corpus()), tokenizer->encode(corpus()));
  EXPECT_EQ(again->eos(), TokenId{418});
  EXPECT_EQ(again->id_of("<|pad|>"), TokenId{419});
  EXPECT_EQ(again->id_of(" the"), tokenizer->encode(" the").at(0));
  EXPECT_EQ(again->id_of("no such token"), std::nullopt);
}

TEST(StreamDecoder, NeverHalfACharacter) {
  const auto tokenizer = train_bpe({"abc"}, {260, "gpt2", {"<|endoftext|>"}, {}});
  Ids ids;
  tokenizer->encode("é👍<|endoftext|>x\xE2\x82", ids, true);
  StreamDecoder decoder(*tokenizer);
  std::vector<std::string> parts;
  for (const TokenId id : ids) parts.push_back(decoder.push(id));
  EXPECT_EQ(parts, (std::vector<std::string>{"", "é", "", "", "", "👍", "", "x", "", ""}));
  EXPECT_EQ(decoder.finish(), "\xE2\x82");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, IdsBeyondTheVocabularyGiveNoText) {
  const auto tokenizer = train_bpe({"abc"}, {257, "gpt2", {"<|endoftext|>"}, {}});
  const TokenId beyond = 300;  // models with a padded vocabulary produce such ids
  const auto shown = [&](bool special) {
    StreamDecoder decoder(*tokenizer, special);
    decoder.follow(beyond);
    std::string text = decoder.push(beyond);
    for (const TokenId id : tokenizer->encode("ab")) text += decoder.push(id) + decoder.push(beyond);
    return text + decoder.finish();
  };
  EXPECT_EQ(shown(false), "ab");
  EXPECT_EQ(shown(true), "<300>a<300>b<300>");
}

const char* const kCharacters = R"({"added_tokens": [{"id": 1, "content": "<s>", "special": true, "normalized": false}],
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
  "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
  "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "fuse_unk": true,
    "vocab": {"<unk>": 0, "<s>": 1, "<0x21>": 2, "▁": 3, "a": 4, "▁a": 5, "b": 6, "ab": 7},
    "merges": ["a b", "▁ a"]}})";

TEST(CharacterBpe, SpacesBytesAndUnknownCharacters) {
  const auto tokenizer = parse_tokenizer(kCharacters, "test");
  EXPECT_EQ(tokenizer->encode("a ab"), (Ids{5, 3, 7}));
  EXPECT_EQ(tokenizer->decode(Ids{5, 3, 7}), "a ab");
  EXPECT_EQ(tokenizer->encode("!??a"), (Ids{3, 2, 0, 4}));  // a byte; what has none is unknown, and two are fused
  Ids ids;
  tokenizer->encode("a<s>a", ids, true);
  EXPECT_EQ(ids, (Ids{5, 1, 5}));
  EXPECT_EQ(tokenizer->decode(ids), "a<s>a");  // the prefix of each segment is taken away again
  StreamDecoder decoder(*tokenizer);
  std::string text;
  for (const TokenId id : {5, 1, 5, 5}) text += decoder.push(id);
  EXPECT_EQ(text, "aa a");
}

/// The message for kCharacters with one value changed.
std::string error_with(const char* pointer, const json& value) {
  json tree = json::parse(kCharacters);
  tree[json::json_pointer(pointer)] = value;
  return testing::error_of([&] { parse_tokenizer(tree.dump(), "test"); });
}

TEST(TokenizerJson, WhatIsNotUnderstoodIsNamed) {
  EXPECT_EQ(error_with("/version", "1.0"), "");
  const auto names = [](const std::string& message, const char* what) {
    return message.find(what) != std::string::npos;
  };
  EXPECT_TRUE(names(error_with("/model/type", "WordLevel"), "WordLevel"));
  EXPECT_TRUE(names(error_with("/model/dropout", 0.1), "dropout"));
  EXPECT_TRUE(names(error_with("/model/end_of_word_suffix", "</w>"), "end_of_word_suffix"));
  EXPECT_TRUE(names(error_with("/model/novel", 1), "novel"));
  EXPECT_TRUE(names(error_with("/normalizer", {{"type", "Novel"}}), "Novel"));
  EXPECT_TRUE(names(error_with("/pre_tokenizer", {{"type", "UnicodeScripts"}}), "UnicodeScripts"));
  EXPECT_TRUE(names(error_with("/decoder", {{"type", "WordPiece"}}), "WordPiece"));
  EXPECT_TRUE(names(error_with("/added_tokens/0/single_word", true), "single_word"));
  EXPECT_TRUE(names(error_with("/model/merges/0", "a x"), "not in the vocabulary"));
  EXPECT_TRUE(names(error_with("/model/vocab/b", 4), "two tokens have the id 4"));
  EXPECT_TRUE(names(error_with("/model/vocab/b", 1000000000), "1000000000"));
  EXPECT_TRUE(names(error_with("/model/unk_token", "<none>"), "<none>"));
}

/// A file whose normalizer is `count` steps that replace "a" by `content`.
std::string with_replacements(int count, const std::string& content) {
  nlohmann::json steps = nlohmann::json::array();
  for (int i = 0; i < count; ++i) {
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", content}});
  }
  auto file = nlohmann::json::parse(byte_tokenizer()->to_json());
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  return file.dump();
}

TEST(TokenizerJson, NormalizersCannotMultiplyATextWithoutEnd) {
  EXPECT_EQ(parse_tokenizer(with_replacements(6, "aa"), "t.json")->encode("a").size(), 64U);
  const auto tokenizer = parse_tokenizer(with_replacements(40, "aa"), "t.json");
  testing::expect_error([&] { tokenizer->encode("a"); }, "t.json: normalizer 13 of 40 makes more than 4160 bytes");
  // A single step can exceed the limit, too.
  const auto long_content = parse_tokenizer(with_replacements(1, std::string(100000, 'b')), "t.json");
  testing::expect_error([&] { long_content->encode(std::string(100000, 'a')); }, "normalizer 1 of 1");
  // Added tokens are normalized when the file is read.
  auto file = nlohmann::json::parse(with_replacements(40, "aa"));
  file["added_tokens"] = {{{"id", 256}, {"content", "a"}, {"special", false}, {"normalized", true}}};
  testing::expect_error([&] { parse_tokenizer(file.dump(), "t.json"); }, "t.json: normalizer 13");
  testing::expect_error([] { parse_tokenizer(with_replacements(257, "a"), "t.json"); }, "has 257 steps");
}

TEST(TokenizerJson, WhatIsNoJsonIsNamedWithItsLine) {
  testing::expect_error([] { parse_tokenizer("{\n\"version\": x}", "t.json"); }, "t.json: line 2, column");
  // Lines are those of the file although the long lists are cut out of it first.
  testing::expect_error([] { parse_tokenizer("{\"model\": {\"vocab\": {\n\"a\": 0\n}\n},\n\"x\": ?}", "t.json"); },
                        "t.json: line 5, column");
  testing::expect_error([] { parse_tokenizer("{\n\"model\": {\"merges\": [1]}}", "t.json"); },
                        "t.json: line 2, column 22");
  const std::string deep = "{\"added_tokens\": " + std::string(70000, '[') + std::string(70000, ']') + "}";
  testing::expect_error([&] { parse_tokenizer(deep, "t.json"); }, "levels deep");
}

TEST(LoadTokenizer, SaysWhatIsMissing) {
  EXPECT_NE(testing::error_of([] { load_tokenizer("/no/such/tokenizer"); }).find("does not exist"), std::string::npos);
  EXPECT_NE(testing::error_of([] { load_tokenizer(LAMINA_SOURCE_DIR "/docs"); }).find("has no tokenizer"),
            std::string::npos);
  EXPECT_NE(testing::error_of([] {
              load_tokenizer(LAMINA_SOURCE_DIR "/README.md");
            }).find("is not a tokenizer of a known kind"),
            std::string::npos);
  EXPECT_NE(testing::error_of([] { train_bpe({"a"}, {100, "gpt2", {}, {}}); }).find("at least 256"), std::string::npos);
  EXPECT_NE(testing::error_of([] { train_bpe({"a"}, {300, "gpt", {}, {}}); }).find("cl100k"), std::string::npos);
}

TEST(SaveTokenizer, KeepsTheEndOfText) {
  const std::string folder =
      (std::filesystem::path(::testing::TempDir()) / ("lamina_tokenizer_" + std::to_string(std::random_device{}())))
          .string();
  std::filesystem::create_directory(folder);
  const auto tokenizer = train_bpe({corpus()}, {300, "gpt2", {"<|a|>", "<|endoftext|>"}, {}});
  save_tokenizer(*tokenizer, folder);
  const auto again = load_tokenizer(folder);
  EXPECT_EQ(again->eos(), TokenId{299});
  EXPECT_EQ(again->bos(), std::nullopt);
  EXPECT_EQ(again->encode(corpus()), tokenizer->encode(corpus()));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lamina::text
