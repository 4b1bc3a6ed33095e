#include "lamina/text/piece_encoder.h"

#include "lamina/base/error.h"
#include "lamina/text/bpe.h"
#include "lamina/text/unigram.h"
#include "lamina/text/utf8.h"
#include "lamina/text/wordpiece.h"

namespace lamina::text {

std::unique_ptr<PieceEncoder> make_piece_encoder(const TokenizerSpec& spec, const std::string& name) {
  switch (spec.algorithm) {
    case Algorithm::wordpiece: return std::make_unique<WordPiece>(spec, name);
    case Algorithm::unigram: return std::make_unique<Unigram>(spec, name);
    default: return std::make_unique<Bpe>(spec, name);
  }
}

void append_unknown_token(std::string_view text, const std::optional<TokenId>& token, const std::string& name,
                          std::vector<TokenId>& ids, UnknownCharacters* unknown) {
  LAMINA_CHECK(token || unknown != nullptr, name, ": ", name_of_first(text),
               " is not in the vocabulary, which has no unknown token; train a tokenizer on text that contains it, "
               "one with a byte fallback (char+bytes), or one of bytes (byte, bpe:N)");
  if (unknown != nullptr) {
    ++unknown->counts[std::string(text)];
    unknown->replaced = token.has_value();
  }
  if (token) ids.push_back(*token);
}

}  // namespace lamina::text
