#include <algorithm>
#include <bitset>
#include <charconv>
#include <filesystem>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/data/prepare.h"
#include "lamina/text/load.h"
#include "lamina/text/simple.h"
#include "lamina/text/train_bpe.h"
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

/// Pairs that the first part of the sources suggests: counts hardly change beyond that.
std::unique_ptr<text::Tokenizer> learned_pairs(int64_t vocab_size, const Sources& sources, const PrepareWatch& watch) {
  constexpr int64_t kEnough = int64_t{256} << 20U;
  std::string sample;
  std::vector<size_t> ends;
  sources.each([&](const Piece& piece) {
    if (piece.source_begin >= kEnough) return;
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
  text::TrainOptions options;
  options.vocab_size = vocab_size;
  if (watch) {
    options.progress = [&](int64_t done, int64_t total) {
      watch({"learning pairs", sources.bytes() * done / std::max<int64_t>(total, 1), sources.bytes(), 0});
    };
  }
  return text::train_bpe(documents, options);
}

/// The N of "bpe:N"; nothing where the name is another.
std::optional<int64_t> pairs_asked_for(const std::string& name) {
  if (!name.starts_with("bpe:")) return {};
  int64_t size = 0;
  const char* end = name.data() + name.size();
  const auto [last, error] = std::from_chars(name.data() + 4, end, size);
  LAMINA_CHECK(error == std::errc() && last == end, "tokenizer \"", name,
               "\": expected bpe: and the size of the vocabulary, for example bpe:4096");
  return size;
}

}  // namespace

std::unique_ptr<text::Tokenizer> tokenizer_for(const std::string& name, const Sources& sources,
                                               const PrepareWatch& watch) {
  if (name == "byte") return text::byte_tokenizer();
  if (name == "char") return text::character_tokenizer(distinct_characters(sources, watch));
  if (const auto pairs = pairs_asked_for(name)) return learned_pairs(*pairs, sources, watch);
  LAMINA_CHECK(path_exists(name), "tokenizer \"", name,
               "\": expected char, byte, bpe:N (N the size of the vocabulary, for example bpe:4096), or the path of a "
               "tokenizer's file or folder");
  return text::load_tokenizer(name);
}

}  // namespace lamina::data
