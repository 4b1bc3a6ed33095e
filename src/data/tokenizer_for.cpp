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
constexpr const char* kWordPieces = "wordpiece:";
constexpr const char* kUnigrams = "unigram:";

/// All distinct characters of the sources. Pieces end between characters. Bytes that are not UTF-8 are an Error; with
/// `any_bytes` they are skipped.
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

/// The number N in "bpe:N", "wordpiece:N" or "unigram:N". Empty if `name` does not begin with `kind`.
std::optional<int64_t> size_asked_for(const std::string& name, const std::string& kind) {
  if (!name.starts_with(kind)) return {};
  int64_t size = 0;
  const char* end = name.data() + name.size();
  const auto [last, error] = std::from_chars(name.data() + kind.size(), end, size);
  LAMINA_CHECK(error == std::errc() && last == end, "tokenizer \"", name, "\": expected ", kind,
               " and the size of the vocabulary, for example ", kind, "4096");
  return size;
}

/// The first kPairSample bytes of the sources, by document.
struct Sample {
  explicit Sample(const Sources& sources) {
    std::vector<size_t> ends;
    sources.each([&](const Piece& piece) {
      if (piece.source_begin >= kPairSample) return;
      text += piece.text;
      if (piece.last) ends.push_back(text.size());
    });
    ends.push_back(text.size());
    size_t begin = 0;
    for (const size_t end : ends) {
      if (end > begin) documents.push_back(std::string_view(text).substr(begin, end - begin));
      begin = end;
    }
  }
  Sample(const Sample&) = delete;
  Sample& operator=(const Sample&) = delete;

  std::string text;
  std::vector<std::string_view> documents;
};

/// Reports progress of learning as a share of the sources' bytes.
std::function<void(int64_t, int64_t)> learning_progress(const Sources& sources, const PrepareWatch& watch) {
  if (!watch) return {};
  return [&sources, &watch](int64_t done, int64_t total) {
    watch({"learning pairs", sources.bytes() * done / std::max<int64_t>(total, 1), sources.bytes(), 0});
  };
}

}  // namespace

bool is_tokenizer_kind(const std::string& name) {
  return name == kCharacters || name == kCharactersAndBytes || name == kBytes || name.starts_with(kPairs) ||
         name.starts_with(kWordPieces) || name.starts_with(kUnigrams);
}

std::unique_ptr<text::Tokenizer> learn_characters(const Sources& sources, const text::CharacterOptions& options,
                                                  const PrepareWatch& watch) {
  return text::character_tokenizer(distinct_characters(sources, options.byte_fallback, watch), options);
}

std::unique_ptr<text::Tokenizer> learn_pairs(const Sources& sources, text::TrainOptions options,
                                             const PrepareWatch& watch) {
  const Sample sample(sources);
  if (watch) options.progress = learning_progress(sources, watch);
  return text::train_bpe(sample.documents, options);
}

std::unique_ptr<text::Tokenizer> learn_wordpieces(const Sources& sources, text::WordPieceOptions options,
                                                  const PrepareWatch& watch) {
  const Sample sample(sources);
  if (watch) options.progress = learning_progress(sources, watch);
  return text::train_wordpiece(sample.documents, options);
}

std::unique_ptr<text::Tokenizer> learn_unigrams(const Sources& sources, text::UnigramOptions options,
                                                const PrepareWatch& watch) {
  const Sample sample(sources);
  if (watch) options.progress = learning_progress(sources, watch);
  return text::train_unigram(sample.documents, options);
}

std::unique_ptr<text::Tokenizer> tokenizer_for(const std::string& name, const Sources& sources,
                                               const PrepareWatch& watch, const std::vector<std::string>& specials) {
  if (name == kBytes) return text::byte_tokenizer(specials);
  if (name == kCharacters) return learn_characters(sources, {.specials = specials}, watch);
  if (name == kCharactersAndBytes)
    return learn_characters(sources, {.specials = specials, .byte_fallback = true}, watch);
  if (const auto size = size_asked_for(name, kPairs)) {
    text::TrainOptions options{.vocab_size = *size};
    for (const std::string& special : specials) options.specials.push_back(special);
    return learn_pairs(sources, options, watch);
  }
  // Do not add special tokens that such a vocabulary already contains.
  const auto others = [&](std::initializer_list<const char*> own) {
    std::vector<std::string> list;
    for (const std::string& special : specials) {
      if (std::ranges::find(own, special) == own.end()) list.push_back(special);
    }
    return list;
  };
  if (const auto size = size_asked_for(name, kWordPieces)) {
    return learn_wordpieces(
        sources, {.vocab_size = *size, .specials = others({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"})}, watch);
  }
  if (const auto size = size_asked_for(name, kUnigrams)) {
    return learn_unigrams(sources, {.vocab_size = *size, .specials = others({"<pad>", "</s>", "<unk>"})}, watch);
  }
  LAMINA_CHECK(
      path_exists(name), "tokenizer \"", name,
      "\": expected char, char+bytes, byte, bpe:N, wordpiece:N or unigram:N (N the size of the vocabulary, for "
      "example bpe:4096), or the path of a tokenizer's file or folder");
  return text::load_tokenizer(name);
}

}  // namespace lamina::data
