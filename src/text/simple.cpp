#include "lamina/text/simple.h"

#include <algorithm>
#include <set>

#include "lamina/base/error.h"
#include "lamina/text/spec.h"
#include "lamina/text/spec_build.h"
#include "lamina/text/utf8.h"

namespace lamina::text {
std::unique_ptr<Tokenizer> byte_tokenizer(const std::vector<std::string>& specials) {
  TokenizerSpec spec;
  for (int byte = 0; byte < 256; ++byte) {
    spec.vocab.push_back({VocabEntry::Kind::ordinary, std::string(1, static_cast<char>(byte))});
  }
  add_specials(spec, specials);
  return make_tokenizer(std::move(spec), "bytes");
}

std::unique_ptr<Tokenizer> character_tokenizer(const std::vector<std::string_view>& corpora,
                                               const CharacterOptions& options) {
  std::set<char32_t> seen;
  for (const std::string_view corpus : corpora) {
    for (size_t at = 0; at < corpus.size();) {
      const CodePoint point = first_code_point(corpus.substr(at, 4));
      LAMINA_CHECK(point.length > 0 || options.byte_fallback,
                   "the text is not UTF-8: ", name_of_first(corpus.substr(at, 1)), " at offset ", at,
                   "; convert it, or use a byte fallback or a tokenizer of bytes");
      if (point.length > 0) seen.insert(point.value);
      at += std::max<size_t>(point.length, 1);
    }
  }
  LAMINA_CHECK(!seen.empty(), "the text is empty; a vocabulary of characters needs at least one");
  TokenizerSpec spec;
  spec.symbols = Symbols::characters;
  for (const char32_t value : seen) {
    std::string character;
    append_utf8(character, value);
    spec.vocab.push_back({VocabEntry::Kind::ordinary, character});
  }
  spec.byte_fallback = options.byte_fallback;
  for (int byte = 0; options.byte_fallback && byte < 256; ++byte) {
    spec.vocab.push_back({VocabEntry::Kind::byte, std::string(1, static_cast<char>(byte))});
  }
  std::vector<std::string> specials = options.specials;
  if (!options.unknown.empty()) {
    spec.unknown = static_cast<TokenId>(spec.vocab.size());
    specials.insert(specials.begin(), options.unknown);
  }
  add_specials(spec, specials);
  return make_tokenizer(std::move(spec), "characters");
}

std::unique_ptr<Tokenizer> character_tokenizer(std::string_view corpus, const CharacterOptions& options) {
  return character_tokenizer(std::vector<std::string_view>{corpus}, options);
}

}  // namespace lamina::text
