// Tokenizers of bytes and characters: ids, and files that are read back unchanged.
#include "lamina/text/simple.h"

#include <gtest/gtest.h>

#include "lamina/text/load.h"
#include "support/error_of.h"

namespace lamina::text {
namespace {

std::string all_bytes() {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
  return text;
}

TEST(ByteTokenizer, IdsAreTheBytes) {
  const auto tokenizer = byte_tokenizer();
  const std::vector<TokenId> ids = tokenizer->encode(all_bytes());
  ASSERT_EQ(ids.size(), 256U);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(ids[static_cast<size_t>(i)], i);
  EXPECT_EQ(tokenizer->decode(ids), all_bytes());
  EXPECT_EQ(tokenizer->vocab_size(), 256);
}

TEST(ByteTokenizer, ItsFileBringsItBack) {
  const auto tokenizer = byte_tokenizer({"<|endoftext|>"});
  const auto again = parse_tokenizer(tokenizer->to_json(), "bytes.json");
  EXPECT_EQ(again->encode(all_bytes()), tokenizer->encode(all_bytes()));
  EXPECT_EQ(again->vocab_size(), 257);
  EXPECT_EQ(again->eos(), TokenId{256});
  EXPECT_TRUE(again->is_special(256));
  EXPECT_EQ(again->to_json(), tokenizer->to_json());
}

TEST(ByteTokenizer, SpecialTokensOnlyWhereAllowed) {
  const auto tokenizer = byte_tokenizer({"<|endoftext|>"});
  const std::string text = "a<|endoftext|>b";
  EXPECT_EQ(tokenizer->encode(text).size(), text.size());
  std::vector<TokenId> ids;
  tokenizer->encode(text, ids, true);
  EXPECT_EQ(ids, (std::vector<TokenId>{'a', 256, 'b'}));
  EXPECT_EQ(tokenizer->decode(ids), text);
}

TEST(CharacterTokenizer, CodePointsInOrder) {
  const auto tokenizer = character_tokenizer("hé\n🙂h");
  EXPECT_EQ(tokenizer->vocab_size(), 4);
  EXPECT_EQ(tokenizer->encode("🙂\nhé"), (std::vector<TokenId>{3, 0, 1, 2}));
  EXPECT_EQ(tokenizer->token(2), "é");
  const auto again = parse_tokenizer(tokenizer->to_json(), "characters.json");
  EXPECT_EQ(again->encode("🙂\nhé"), tokenizer->encode("🙂\nhé"));
  EXPECT_EQ(again->decode(std::vector<TokenId>{3, 0, 1, 2}), "🙂\nhé");
}

TEST(CharacterTokenizer, UnknownCharactersAreNamed) {
  const auto tokenizer = character_tokenizer("abc");
  EXPECT_NE(testing::error_of([&] { tokenizer->encode("aé"); }).find("U+00E9 'é'"), std::string::npos);
  EXPECT_NE(testing::error_of([&] { tokenizer->encode("a\xFF"); }).find("byte 0xFF"), std::string::npos);
  EXPECT_NE(testing::error_of([&] { tokenizer->decode(std::vector<TokenId>{3}); }).find("no token 3"),
            std::string::npos);
  EXPECT_NE(testing::error_of([] { character_tokenizer("ab\xC3"); }).find("offset 2"), std::string::npos);
}

TEST(CharacterTokenizer, ByteFallbackReadsAnyText) {
  const auto tokenizer = character_tokenizer("abc", {.byte_fallback = true});
  EXPECT_EQ(tokenizer->vocab_size(), 3 + 256);
  EXPECT_EQ(tokenizer->encode("aéc"), (std::vector<TokenId>{0, 3 + 0xC3, 3 + 0xA9, 2}));
  for (const std::string& text : {std::string("cab 🙂\n"), all_bytes()}) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    const auto again = parse_tokenizer(tokenizer->to_json(), "characters.json");
    EXPECT_EQ(again->encode(text), tokenizer->encode(text));
    EXPECT_EQ(again->decode(again->encode(text)), text);
    EXPECT_EQ(again->describe().kind, "characters with byte fallback");
  }
  // A corpus that is not UTF-8 is no obstacle: its stray bytes have tokens.
  EXPECT_EQ(character_tokenizer("ab\xFF", {.byte_fallback = true})->encode("\xFF"), (std::vector<TokenId>{2 + 0xFF}));
}

TEST(CharacterTokenizer, UnknownCharactersAreCountedAndSkipped) {
  const auto tokenizer = character_tokenizer("abc");
  std::vector<TokenId> ids;
  UnknownCharacters unknown;
  tokenizer->encode("aéb€éc\xFF", ids, false, &unknown);
  EXPECT_EQ(ids, (std::vector<TokenId>{0, 1, 2}));
  EXPECT_EQ(unknown.counts, (std::map<std::string, int64_t>{{"é", 2}, {"€", 1}, {"\xFF", 1}}));
  EXPECT_EQ(unknown.total(), 4);
  EXPECT_FALSE(unknown.replaced);
}

TEST(CharacterTokenizer, UnknownCharactersAreCountedAndReplaced) {
  const auto tokenizer = character_tokenizer("abc", {"<unk>", {}});
  std::vector<TokenId> ids;
  UnknownCharacters unknown;
  tokenizer->encode("aéc", ids, false, &unknown);
  EXPECT_EQ(ids, (std::vector<TokenId>{0, 3, 2}));
  EXPECT_EQ(unknown.total(), 1);
  EXPECT_TRUE(unknown.replaced);
}

TEST(CharacterTokenizer, UnknownCharactersAsAToken) {
  const auto tokenizer = character_tokenizer("abc", {"<unk>", {}});
  EXPECT_EQ(tokenizer->encode("aéc"), (std::vector<TokenId>{0, 3, 2}));
  EXPECT_EQ(parse_tokenizer(tokenizer->to_json(), "characters.json")->encode("aéc"), tokenizer->encode("aéc"));
}

}  // namespace
}  // namespace lamina::text
