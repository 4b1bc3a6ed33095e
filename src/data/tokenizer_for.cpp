#include <algorithm>
#include <bitset>
#include <charconv>
#include <filesystem>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/data/prepare.h"
#include "lamina/text/load.h"
#include "lamina/text/utf8.h"

namespace lamina::data {
namespace {

constexpr const char* kCharacters = "char";
constexpr const char* kCharactersAndBytes = "char+bytes";
constexpr const char* kBytes = "byte";
constexpr const char* kPairs = "bpe:";

/// Every distinct character of the sources. Pieces end between characters. Bytes that are not UTF-8 are an Error, or
/// skipped with `any_bytes`.
std::string distinct_characters(const Sources& sources, bool any_bytes, const PrepareWatch& watch) {
  std::bitset<0x110000> seen;
  sources.each([&](const Piece& piece) {
    for (size_t at = 0; at < piece.text.size();) {
      const text::CodePoint next = text::first_code_point(piece.text.substr(at));
      LAMINA_CHECK(
          next.length > 0 || any_bytes, "document ", piece.document, " is not UTF-8 at byte ",
          piece.at + static_cast<int64_t>(at),
          "; convert it (iconv -f latin1 -t utf-8), or use a tokenizer for any bytes: char+bytes, byte, bpe:N");
      if (next.length > 0) seen.set(next.value);
      at += std::max<size_t>(next.length, 1);
    }
    if (watch) watch({"collecting characters", piece.source_end, sources.bytes(), 0});
  });
  std::string characters;
  for (size_t value = 0; value < seen.size(); ++value) {
    if (seen[value]) text::append_utf8(characters, static_cast<char32_t>(value));
  }
  return characters;
}

/// The N of "bpe:N"; nullopt for any other name.
std::optional<int64_t> pairs_asked_for(const std::string& name) {
  if (!name.starts_with(kPairs)) return {};
  int64_t size = 0;
  const char* end = name.data() + name.size();
  const auto [last, error] = std::from_chars(name.data() + 4, end, size);
  LAMINA_CHECK(error == std::errc() && last == end, "tokenizer \"", name,
               "\": expected bpe: and the size of the vocabulary, for example bpe:4096");
  return size;
}

}  // namespace

bool is_tokenizer_kind(const std::string& name) {
  return name == kCharacters || name == kCharactersAndBytes || name == kBytes || name.starts_with(kPairs);
}

std::unique_ptr<text::Tokenizer> learn_characters(const Sources& sources, const text::CharacterOptions& options,
                                                  const PrepareWatch& watch) {
  return text::character_tokenizer(distinct_characters(sources, options.byte_fallback, watch), options);
}

std::unique_ptr<text::Tokenizer> learn_pairs(const Sources& sources, text::TrainOptions options,
                                             const PrepareWatch& watch) {
  std::string sample;
  std::vector<size_t> ends;
  sources.each([&](const Piece& piece) {
    if (piece.source_begin >= kPairSample) return;
    sample += piece.text;
    if (piece.last) ends.push_back(sample.size());
  });
  ends.push_back(sample.size());
  std::vector<std::string_view> documents;
  size_t begin = 0;
  for (const size_t end : ends) {
    if (end > begin) documents.push_back(std::string_view(sample).substr(begin, end - begin));
    begin = end;
  }
  if (watch) {
    options.progress = [&](int64_t done, int64_t total) {
      watch({"learning pairs", sources.bytes() * done / std::max<int64_t>(total, 1), sources.bytes(), 0});
    };
  }
  return text::train_bpe(documents, options);
}

std::unique_ptr<text::Tokenizer> tokenizer_for(const std::string& name, const Sources& sources,
                                               const PrepareWatch& watch) {
  if (name == kBytes) return text::byte_tokenizer();
  if (name == kCharacters) return learn_characters(sources, {}, watch);
  if (name == kCharactersAndBytes) return learn_characters(sources, {.byte_fallback = true}, watch);
  if (const auto size = pairs_asked_for(name)) return learn_pairs(sources, {.vocab_size = *size}, watch);
  LAMINA_CHECK(
      path_exists(name), "tokenizer \"", name,
      "\": expected char, char+bytes, byte, bpe:N (N the size of the vocabulary, for example bpe:4096), or the "
      "path of a tokenizer's file or folder");
  return text::load_tokenizer(name);
}

}  // namespace lamina::data
