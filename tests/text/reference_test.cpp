// Agreement with other implementations: tests/golden/tokenizers has texts and the ids that they give
// (tools/peers/make_tokenizer_vectors.js, make_sentencepiece_vectors.py). Vocabularies of known models are not part of
// the repository: tools/fetch-tokenizers downloads them; without them their tests are skipped.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/text/load.h"
#include "lamina/text/stream_decoder.h"
#include "lamina/text/train_bpe.h"

namespace lamina::text {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

const std::string kGolden = std::string(LAMINA_GOLDEN_DIR) + "/tokenizers/";

std::vector<std::string> texts() { return json::parse(read_text(kGolden + "texts.json")); }
std::vector<Ids> expected(const std::string& name) { return json::parse(read_text(kGolden + name + ".ids.json")); }

Ids encoded(const Tokenizer& tokenizer, const std::string& text, bool special) {
  Ids ids;
  tokenizer.encode(text, ids, special);
  return ids;
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids) {
  StreamDecoder decoder(tokenizer, true);
  std::string text;
  for (const TokenId id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

void expect_same_ids(const Tokenizer& tokenizer, const std::string& name, bool special = true) {
  const std::vector<std::string> all = texts();
  const std::vector<Ids> ids = expected(name);
  ASSERT_EQ(ids.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(encoded(tokenizer, all[i], special), ids[i]) << name << ", text " << i << ": " << json(all[i]);
    EXPECT_EQ(streamed(tokenizer, ids[i]), tokenizer.decode(ids[i])) << name << ", text " << i;
  }
}

struct Vocabulary {
  const char* name;
  bool identity;  // true if its normalizer does not change these texts
};

class Fetched : public ::testing::TestWithParam<Vocabulary> {};

TEST_P(Fetched, GivesTheSameIds) {
  const std::string name = GetParam().name;
  const std::string folder = std::string(LAMINA_SOURCE_DIR) + "/build/tokenizers/" + name;
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder << ": run tools/fetch-tokenizers " << name;
  const auto tokenizer = load_tokenizer(folder);
  expect_same_ids(*tokenizer, name);
  if (!GetParam().identity) return;
  for (const std::string& text : texts()) {
    if (text.find("▁") != std::string::npos && name != "gpt2") continue;
    EXPECT_EQ(tokenizer->decode(encoded(*tokenizer, text, true)), text) << name;
    EXPECT_EQ(tokenizer->decode(encoded(*tokenizer, text, false)), text) << name;
  }
}
INSTANTIATE_TEST_SUITE_P(Vocabularies, Fetched,
                         ::testing::Values(Vocabulary{"gpt2", true}, Vocabulary{"gpt2-files", true},
                                           Vocabulary{"llama2", true}, Vocabulary{"llama3", true},
                                           Vocabulary{"qwen2.5", false}, Vocabulary{"gemma2", true},
                                           Vocabulary{"nemo", true}, Vocabulary{"deepseek-v3", true},
                                           Vocabulary{"cl100k", true}, Vocabulary{"o200k", true}),
                         [](const auto& one) {
                           std::string name = one.param.name;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

TEST(SentencePiece, GivesTheSameIds) {
  const auto tokenizer = load_tokenizer(kGolden + "spm_bpe.model");
  expect_same_ids(*tokenizer, "spm_bpe", false);
  EXPECT_EQ(tokenizer->bos(), TokenId{1});
  EXPECT_EQ(tokenizer->eos(), TokenId{2});
  const auto again = parse_tokenizer(tokenizer->to_json(), "written");
  for (const std::string& text : texts()) {
    if (text.find("▁") != std::string::npos) continue;
    EXPECT_EQ(tokenizer->decode(encoded(*tokenizer, text, false)), text);
  }
  EXPECT_EQ(again->vocab_size(), tokenizer->vocab_size());
}

/// The other implementation reads line by line, goes on while a pair occurs at all, and lists the bytes of the corpus
/// only.
TEST(TrainBpe, LearnsWhatAnotherImplementationLearns) {
  const std::string corpus = read_text(kGolden + "corpus.txt");
  std::vector<std::string_view> lines;
  for (size_t at = 0; at < corpus.size(); at += lines.back().size()) {
    lines.push_back(std::string_view(corpus).substr(at, corpus.find('\n', at) + 1 - at));
  }
  const auto ours = json::parse(train_bpe(lines, {2000, "gpt2", {}, {}})->to_json())["model"]["merges"];
  const auto theirs = json::parse(read_text(kGolden + "hf_trained.json"))["model"]["merges"];
  ASSERT_GT(ours.size(), 100U);
  ASSERT_LT(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) ASSERT_EQ(ours[i], theirs[i]) << "merge " << i;
}

TEST(HfTrained, GivesTheSameIds) {
  const auto tokenizer = load_tokenizer(kGolden + "hf_trained.json");
  const std::vector<std::string> all = texts();
  const std::vector<Ids> ids = expected("hf_trained");
  size_t compared = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    try {
      EXPECT_EQ(tokenizer->encode(all[i]), ids[i]) << json(all[i]);
      ++compared;
    } catch (const Error&) {  // a byte that the corpus has not; the other implementation leaves it out
      EXPECT_NE(tokenizer->decode(ids[i]), all[i]);
    }
  }
  EXPECT_GT(compared, 20U);
}

}  // namespace
}  // namespace lamina::text
