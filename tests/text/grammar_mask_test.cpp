// Masks against trying every token, and random walks through masks against an independent validator.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "lamina/base/error.h"
#include "lamina/text/grammar/grammar_state.h"
#include "lamina/text/load.h"
#include "lamina/text/simple.h"
#include "lamina/text/train_bpe.h"

namespace lamina::text {
namespace {

constexpr const char* kPerson = R"({"type":"object","properties":{
  "name":{"type":"string","minLength":1,"maxLength":12},"age":{"type":"integer","minimum":0,"maximum":130},
  "email":{"type":"string","format":"email"},"tags":{"type":"array","items":{"enum":["new","old","é\n"]},"maxItems":3},
  "code":{"type":"string","pattern":"^[A-Z]{2,3}-\\d+$"},
  "parent":{"anyOf":[{"$ref":"#"},{"type":"null"}]},"score":{"type":"number","exclusiveMinimum":-1.5,"maximum":99.25},
  "note":{"type":"string"},"extra":{"type":"object","additionalProperties":{"type":"boolean"}}},
  "required":["name","age","parent"],"additionalProperties":false})";

std::shared_ptr<const VocabularyIndex> index_of(const Tokenizer& tokenizer) {
  return std::make_shared<const VocabularyIndex>(tokenizer);
}

/// A tokenizer with every byte and merges that cross the borders of JSON's elements.
const Tokenizer& small_tokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer = [] {
    const std::string text =
        R"({"name":"Zoë 漢字","age":42,"email":"a@b.cd","tags":["new","old"],"code":"AB-12","parent":null,"score":1.5,)"
        R"("note":"x\n\"y\"","extra":{"q":true,"r":false}},{"name": "a", "tags": [ "new" ]}])";
    return train_bpe({text, text, text, text}, {700, "gpt2", {"<|endoftext|>"}, {}});
  }();
  return *tokenizer;
}

bool bit(const std::vector<uint32_t>& words, TokenId id) {
  return (words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

/// Walks at random through the masks; in every state compares the mask with trying each token.
void compare_masks(const Grammar& grammar, const Tokenizer& tokenizer, uint32_t seed, int steps) {
  const auto vocabulary = index_of(tokenizer);
  const auto tokens = std::make_shared<TokenGrammar>(grammar, vocabulary);
  std::vector<uint32_t> words(vocabulary->words());
  std::mt19937 random(seed);
  GrammarState state(tokens);
  std::string text;
  for (int step = 0; step < steps; ++step) {
    state.mask(words);
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < vocabulary->size(); ++id) {
      ASSERT_EQ(bit(words, id), state.allows(id)) << "after " << text << " token " << id << ": " << tokenizer.token(id);
      if (bit(words, id)) allowed.push_back(id);
    }
    ASSERT_FALSE(allowed.empty()) << text;
    const TokenId chosen = allowed[random() % allowed.size()];
    ASSERT_TRUE(state.accept(chosen));
    if (state.ended()) {
      EXPECT_TRUE(grammar.matches(text)) << text;
      state = GrammarState(tokens);
      text.clear();
    } else {
      text += vocabulary->bytes(chosen);
    }
  }
}

TEST(GrammarMask, EqualsTryingEveryToken) {
  const Tokenizer& tokenizer = small_tokenizer();
  compare_masks(Grammar::json_schema(kPerson), tokenizer, 1, 400);
  compare_masks(Grammar::json_schema(kPerson, {JsonOptions::Whitespace::none, false}), tokenizer, 2, 400);
  compare_masks(Grammar::json(true), tokenizer, 3, 300);
  compare_masks(Grammar::regex("(ab|\"[^\"]{2,40}\"|é+){3,60}"), tokenizer, 4, 300);
  compare_masks(Grammar::gbnf("root ::= item{2,90} \"!\"\nitem ::= [a-z]{1,40} | \"(\" root \")\" | [^a-z()!]\n"),
                tokenizer, 5, 300);
  compare_masks(Grammar::gbnf("root ::= (\"a\" [^b]){70,} \"b\"?\n"), tokenizer, 6, 300);
}

TEST(GrammarMask, WorksOnBytesAndCharacters) {
  compare_masks(Grammar::json_schema(kPerson), *byte_tokenizer({"<|endoftext|>"}), 1, 200);
  const auto tokenizer = byte_tokenizer({"<|endoftext|>"});
  GrammarState state(std::make_shared<TokenGrammar>(Grammar::regex("é|ê"), index_of(*tokenizer)));
  EXPECT_FALSE(state.accept('e'));
  EXPECT_TRUE(state.accept(0xC3));  // a token that ends inside a character
  EXPECT_FALSE(state.can_end());
  EXPECT_FALSE(state.allows(0xA8));
  GrammarState copy = state;
  EXPECT_TRUE(copy.accept(0xA9));
  EXPECT_TRUE(copy.can_end());
  EXPECT_TRUE(state.accept(0xAA));  // the copy did not advance the state
  EXPECT_FALSE(state.ended());
  EXPECT_TRUE(state.accept(*tokenizer->eos()));
  EXPECT_TRUE(state.ended());
  std::vector<uint32_t> words(state.grammar().vocabulary().words());
  state.mask(words);
  EXPECT_EQ(words, std::vector<uint32_t>(words.size(), 0));
}

TEST(GrammarMask, NeverAllowsSpecialTokensButTheEnd) {
  const Tokenizer& tokenizer = small_tokenizer();
  const auto vocabulary =
      std::make_shared<const VocabularyIndex>(tokenizer, std::vector<TokenId>{}, tokenizer.vocab_size() + 37);
  GrammarState state(std::make_shared<TokenGrammar>(Grammar::regex("[\\s\\S]*"), vocabulary));
  std::vector<uint32_t> words(vocabulary->words());
  state.mask(words);
  for (TokenId id = 0; id < vocabulary->size(); ++id) {
    const bool expected = id < tokenizer.vocab_size() && (!tokenizer.is_special(id) || id == tokenizer.eos());
    // A byte that cannot begin a character is not text.
    const bool text = id >= tokenizer.vocab_size() || tokenizer.is_special(id) || state.allows(id);
    EXPECT_EQ(bit(words, id), expected && text) << id;
  }
}

TEST(GrammarMask, ForcedTokensAreCanonicalAndAllowed) {
  const Tokenizer& tokenizer = small_tokenizer();
  const auto tokens = std::make_shared<TokenGrammar>(
      Grammar::json_schema(R"({"type":"object","properties":{"name":{"type":"string"},"extra":{"type":"integer"}},
      "required":["name","extra"],"additionalProperties":false})",
                           {JsonOptions::Whitespace::none, false}),
      index_of(tokenizer));
  GrammarState state(tokens);
  EXPECT_EQ(state.forced_bytes(), R"({"name":")");
  const std::vector<TokenId> forced = state.forced_tokens(tokenizer);
  ASSERT_FALSE(forced.empty());
  const std::string text = tokenizer.decode(forced);
  EXPECT_TRUE(std::string(R"({"name":")").starts_with(text)) << text;
  for (const TokenId id : forced) ASSERT_TRUE(state.accept(id));
  ASSERT_TRUE(state.accept_bytes(std::string(R"({"name":")").substr(text.size()) + "x\""));
  EXPECT_EQ(state.forced_bytes(), R"(,"extra":)");
  EXPECT_EQ(state.forced_bytes(3), R"(,"e)");
  ASSERT_TRUE(state.accept_bytes(R"(,"extra":1)"));
  EXPECT_EQ(state.forced_bytes(), "");  // a digit or the end may follow, so nothing is forced
  ASSERT_TRUE(state.accept_bytes("}"));
  EXPECT_TRUE(state.can_end());
  EXPECT_EQ(state.forced_bytes(), "");
}

TEST(GrammarMask, RandomWalksGiveValidDocuments) {
  if (std::system("python3 -W ignore -c 'import jsonschema' >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "python3-jsonschema is not installed: tools/deps --test";
  }
  const std::string fetched = std::string(LAMINA_SOURCE_DIR) + "/build/tokenizers/gpt2";
  const std::unique_ptr<Tokenizer> real = std::filesystem::exists(fetched) ? load_tokenizer(fetched) : nullptr;
  const Tokenizer& tokenizer = real ? *real : small_tokenizer();
  const auto vocabulary = index_of(tokenizer);
  const std::vector<std::string> schemas = {
      kPerson,
      R"({"type":"array","items":{"type":"number","multipleOf":0.25,"minimum":-9e9,"maximum":1e6},"minItems":2,"maxItems":5})",
      R"({"type":"object","patternProperties":{"^a":{"type":"integer"},"b$":{"minimum":3}},"additionalProperties":{"type":"null"},"propertyNames":{"maxLength":4}})",
      R"({"anyOf":[{"type":"string","pattern":"(ab|c)+\\s"},{"const":[1,{"a":"b"}]},{"type":"integer","multipleOf":12,"minimum":100}]})",
      R"({"type":"object","properties":{"when":{"type":"string","format":"date"},"id":{"type":"string","format":"uuid"}},"minProperties":0})"};
  const std::string path = ::testing::TempDir() + "lamina_walks.jsonl";
  std::ofstream file(path);
  std::mt19937 random(11);
  int documents = 0;
  for (const std::string& schema : schemas) {
    const auto tokens = std::make_shared<TokenGrammar>(Grammar::json_schema(schema), vocabulary);
    std::vector<uint32_t> words(vocabulary->words());
    for (int walk = 0; walk < 12; ++walk) {
      GrammarState state(tokens);
      std::string text;
      for (int step = 0; !state.ended(); ++step) {
        state.mask(words);
        std::vector<TokenId> allowed;
        for (TokenId id = 0; id < vocabulary->size(); ++id) {
          if (bit(words, id) && !vocabulary->is_end(id)) allowed.push_back(id);
        }
        // Ends as soon as it can after a while, and prefers tokens that close something.
        if (state.can_end() && (allowed.empty() || step > 20 || random() % 4 == 0)) {
          ASSERT_TRUE(state.accept(vocabulary->end_tokens()[0]));
          break;
        }
        ASSERT_FALSE(allowed.empty()) << text;
        TokenId chosen = allowed[random() % allowed.size()];
        if (step > 20) {
          for (const TokenId id : allowed) {
            const std::string_view bytes = vocabulary->bytes(id);
            if (bytes == "\"" || bytes == "}" || bytes == "]" || bytes == "null") chosen = id;
          }
        }
        if (step > 200) break;
        ASSERT_TRUE(state.accept(chosen)) << text;
        text += vocabulary->bytes(chosen);
      }
      if (!state.can_end()) continue;
      file << nlohmann::json{{"schema", nlohmann::json::parse(schema)}, {"text", text}}.dump() << '\n';
      ++documents;
    }
  }
  file.close();
  EXPECT_GT(documents, 40);
  const std::string script = ::testing::TempDir() + "lamina_validate.py";
  std::ofstream(script) << "import json, sys, jsonschema\n"
                           "for line in open(sys.argv[1], encoding='utf-8'):\n"
                           "    case = json.loads(line)\n"
                           "    checker = jsonschema.FormatChecker()\n"
                           "    validator = jsonschema.Draft202012Validator(case['schema'], format_checker=checker)\n"
                           "    validator.validate(json.loads(case['text']))\n";
  EXPECT_EQ(std::system(("python3 -W ignore '" + script + "' '" + path + "'").c_str()), 0);
}

}  // namespace
}  // namespace lamina::text
