#include <bitset>
#include <charconv>
#include <filesystem>

#include "lamina/base/error.h"
#include "lamina/data/prepare.h"
#include "lamina/text/load.h"
#include "lamina/text/simple.h"
#include "lamina/text/utf8.h"

namespace lamina::data {
namespace {

/// Every character of the sources once. A file is UTF-8 from its start, and pieces end between characters.
std::string distinct_characters(const Sources& sources, const PrepareWatch& watch) {
  std::bitset<0x110000> seen;
  sources.each([&](const Piece& piece) {
    for (size_t at = 0; at < piece.text.size();) {
      const text::CodePoint next = text::first_code_point(piece.text.substr(at));
      LAMINA_CHECK(next.length > 0, "document ", piece.document, " is no UTF-8 at byte ",
                   piece.at + static_cast<int64_t>(at),
                   "; convert it (iconv -f latin1 -t utf-8), or use --tokenizer byte or bpe:N, which take any bytes");
      seen.set(next.value);
      at += next.length;
    }
    if (watch) watch({"collecting characters", piece.source_end, sources.bytes(), 0});
  });
  std::string characters;
  for (size_t value = 0; value < seen.size(); ++value) {
    if (seen[value]) text::append_utf8(characters, static_cast<char32_t>(value));
  }
  return characters;
}

}  // namespace

std::unique_ptr<text::Tokenizer> tokenizer_for(const std::string& name, const Sources& sources,
                                               const PrepareWatch& watch) {
  if (name == "byte") return text::byte_tokenizer();
  if (name == "char") return text::character_tokenizer(distinct_characters(sources, watch));
  LAMINA_CHECK(std::filesystem::exists(name), "tokenizer \"", name,
               "\": expected char, byte, bpe:N (N the size of the vocabulary, for example bpe:4096), or the path of a "
               "tokenizer's file or folder");
  return text::load_tokenizer(name);
}

}  // namespace lamina::data
