#include "lamina/data/token_file.h"

#include <gtest/gtest.h>

#include <array>

#include "data/data_support.h"
#include "lamina/base/crc32c.h"
#include "lamina/base/files.h"
#include "support/error_of.h"

namespace lamina::testing {
namespace {

using data::TokenFile;
using data::TokenWriter;

std::vector<int64_t> all_of(const TokenFile& file) {
  std::vector<int64_t> ids(static_cast<size_t>(file.size()));
  file.read(0, ids);
  return ids;
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST(Crc32c, MatchesThePublishedVectors) {
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0').data(), 32), 0x8A9136AAU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff').data(), 32), 0x62A8AB43U);
  EXPECT_EQ(crc32c("456789", 6, crc32c("123", 3)), 0xE3069283U);
}

TEST(TokenFile, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  for (const int64_t vocab : {int64_t{65536}, int64_t{65537}}) {
    TokenWriter writer(folder / "a.bin", vocab, 0x123456789abcdef0);
    std::vector<int64_t> expected;
    std::vector<int64_t> starts;
    std::mt19937 random(3);
    for (const int length : {5, 0, 1, 700000, 2}) {  // more than the writer's buffer
      std::vector<int32_t> ids;
      for (int i = 0; i < length; ++i) ids.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocab)));
      if (length > 0) starts.push_back(static_cast<int64_t>(expected.size()));
      expected.insert(expected.end(), ids.begin(), ids.end());
      writer.write(std::span(ids).first(ids.size() / 2));
      writer.write(std::span(ids).subspan(ids.size() / 2));
      writer.end_document();
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "a.bin"));
    writer.publish();
    const TokenFile file = TokenFile::open(folder / "a.bin");
    file.verify();
    EXPECT_EQ(file.width(), vocab == 65536 ? 2 : 4);
    EXPECT_EQ(file.vocab_size(), vocab);
    EXPECT_EQ(file.tokenizer_hash(), 0x123456789abcdef0U);
    EXPECT_EQ(all_of(file), expected);
    ASSERT_EQ(file.document_count(), 4);
    for (size_t d = 0; d < starts.size(); ++d) {
      const auto document = static_cast<int64_t>(d);
      EXPECT_EQ(file.document_start(document), starts[d]);
      EXPECT_EQ(file.document_of(starts[d]), document);
      EXPECT_EQ(file.document_of(file.document_start(document + 1) - 1), document);
    }
    EXPECT_EQ(file.document_start(4), file.size());
    std::filesystem::remove(folder / "a.bin");
  }
}

TEST(TokenFile, TheFormatIsWhatTheDocumentationSays) {
  const TemporaryFolder folder;
  TokenWriter writer(folder / "a.bin", 300, 0x0102030405060708);
  writer.write(std::array<int32_t, 3>{1, 258, 299});
  writer.publish();
  const std::string bytes = read_text(folder / "a.bin");
  const std::string head(
      "LAMINATK\1\0\0\0\2\0\0\0\x2c\1\0\0\0\0\0\0\3\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\x8\7\6\5\4\3\2\1\0\0\0\0\0\0\0\0",
      56);
  const std::string body("\1\0\2\1\x2b\1\0\0\0\0\0\0\0\0\0\0", 16);
  EXPECT_EQ(bytes.substr(0, 56), head);
  EXPECT_EQ(bytes.substr(64), body);
}

TEST(TokenFile, ForeignFormats) {
  const std::vector<uint16_t> narrow{0, 50256, 7, 65535};
  const std::vector<uint32_t> wide{0, 128000, 4000000000U};
  const TokenFile raw = TokenFile::parse(in_memory(bytes_of(narrow)), "raw.bin");
  EXPECT_EQ(all_of(raw), (std::vector<int64_t>{0, 50256, 7, 65535}));
  EXPECT_EQ(raw.vocab_size(), 0);
  EXPECT_EQ(raw.document_count(), 1);
  std::vector<int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 4;
  const TokenFile gpt2 = TokenFile::parse(in_memory(bytes_of(header) + bytes_of(narrow)), "gpt2.bin");
  EXPECT_EQ(all_of(gpt2), all_of(raw));
  EXPECT_STREQ(gpt2.format(), "llm.c");
  header[0] = 20240801;
  header[1] = 7;
  header[2] = 3;
  const TokenFile llama = TokenFile::parse(in_memory(bytes_of(header) + bytes_of(wide)), "llama.bin");
  EXPECT_EQ(all_of(llama), (std::vector<int64_t>{0, 128000, 4000000000}));
  header[2] = 4;
  EXPECT_NE(error_of([&] { TokenFile::parse(in_memory(bytes_of(header) + bytes_of(wide)), "x"); }).find("cut off"),
            std::string::npos);
  header[1] = 2;
  EXPECT_NE(error_of([&] { TokenFile::parse(in_memory(bytes_of(header) + bytes_of(wide)), "x"); }).find("version 2"),
            std::string::npos);
  EXPECT_NE(error_of([] { TokenFile::parse(in_memory("abc"), "x"); }).find("data prepare"), std::string::npos);
  EXPECT_NE(error_of([] { TokenFile::parse(in_memory(""), "x"); }).find("empty"), std::string::npos);
}

/// Any cut, and any changed byte, is found: at opening, or by verify.
TEST(TokenFile, DamageIsFound) {
  const TemporaryFolder folder;
  counting_file(folder / "a.bin", {3, 4, 2});
  const std::string whole = read_text(folder / "a.bin");
  for (size_t length = 8; length < whole.size(); ++length) {
    EXPECT_THROW(TokenFile::parse(in_memory(whole.substr(0, length)), "x"), Error) << length;
  }
  EXPECT_THROW(TokenFile::parse(in_memory(whole + "12345678"), "x"), Error);
  for (size_t i = 8; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_THROW(TokenFile::parse(in_memory(damaged), "x").verify(), Error) << i;
  }
}

TEST(TokenFile, IsToldFromATextByItsName) {
  for (const char* name : {"train.bin", "a/b.tokens"}) EXPECT_TRUE(data::is_token_file(name)) << name;
  for (const char* name : {"a.txt", "a.bin/b", "bin", ""}) EXPECT_FALSE(data::is_token_file(name)) << name;
}

TEST(TokenFile, WrongUseIsAnError) {
  const TemporaryFolder folder;
  const TokenFile file = counting_file(folder / "a.bin", {3, 4});
  std::array<int64_t, 3> ids{};
  EXPECT_THROW(file.read(5, ids), Error);
  EXPECT_THROW(file.read(-1, ids), Error);
  EXPECT_THROW(file.document_start(3), Error);
  EXPECT_THROW(file.document_of(7), Error);
  EXPECT_THROW(TokenFile::open(folder / "none.bin"), Error);
  EXPECT_THROW(TokenFile::open(folder.path()), Error);
  EXPECT_THROW(TokenWriter(folder / "no/such/folder.bin", 10, 0), Error);
  TokenWriter writer(folder / "b.bin", 10, 0);
  EXPECT_THROW(writer.write(std::array<int32_t, 1>{10}), Error);
  EXPECT_THROW(writer.write(std::array<int32_t, 1>{-1}), Error);
}

}  // namespace
}  // namespace lamina::testing
