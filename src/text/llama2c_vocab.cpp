#include <cstring>

#include "lamina/base/error.h"
#include "lamina/text/byte_alphabet.h"
#include "lamina/text/formats.h"
#include "lamina/text/scored_merges.h"
#include "lamina/text/sentencepiece.h"

namespace lamina::text {

namespace {

/// The layout is that of LLaMA: three special tokens (with newlines around their names in the file), then the 256
/// bytes, written as names or, in older files, as characters.
SentencePieces::Piece piece_of(size_t id, const std::string& text, float score) {
  using Type = SentencePieces::Type;
  static const char* const kNames[] = {"<unk>", "<s>", "</s>"};
  if (id <= 2) return {kNames[id], score, id == 0 ? Type::unknown : Type::control};
  if (id < 3 + 256) return {name_of_byte(static_cast<unsigned char>(id - 3)), score, Type::byte};
  return {escaped_spaces(text), score, Type::normal};
}

}  // namespace

TokenizerSpec read_llama2c(std::string_view bytes, const std::string& name) {
  const auto take = [&](void* into, size_t length) {
    LAMINA_CHECK(bytes.size() >= length, name, ": ends within a token; expected llama2.c's tokenizer.bin");
    std::memcpy(into, bytes.data(), length);
    bytes.remove_prefix(length);
  };
  int32_t longest = 0;
  take(&longest, sizeof longest);
  SentencePieces pieces;
  pieces.byte_fallback = true;
  while (!bytes.empty()) {
    float score = 0;
    int32_t length = 0;
    take(&score, sizeof score);
    take(&length, sizeof length);
    LAMINA_CHECK(length >= 0 && length <= longest, name, ": token ", pieces.pieces.size(), " has ", length,
                 " bytes, the longest should have ", longest, "; expected llama2.c's tokenizer.bin");
    std::string text(static_cast<size_t>(length), '\0');
    take(text.data(), text.size());
    pieces.pieces.push_back(piece_of(pieces.pieces.size(), text, score));
  }
  LAMINA_CHECK(pieces.pieces.size() > 3, name, ": has no tokens; expected llama2.c's tokenizer.bin");
  pieces.unknown = 0;
  pieces.bos = 1;
  pieces.eos = 2;
  return spec_of(pieces, name);
}

}  // namespace lamina::text
