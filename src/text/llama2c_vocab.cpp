#include <cstring>

#include "lamina/base/error.h"
#include "lamina/text/byte_alphabet.h"
#include "lamina/text/formats.h"
#include "lamina/text/scored_merges.h"
#include "lamina/text/sentencepiece.h"

namespace lamina::text {

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
    using Type = SentencePieces::Type;
    const size_t id = pieces.pieces.size();
    if (id <= 2) {
      static const char* const kNames[] = {"<unk>", "<s>", "</s>"};  // the file has them with newlines around
      pieces.pieces.push_back({kNames[id], score, id == 0 ? Type::unknown : Type::control});
    } else {
      pieces.pieces.push_back({escaped_spaces(text), score, byte_named(text) >= 0 ? Type::byte : Type::normal});
    }
  }
  LAMINA_CHECK(pieces.pieces.size() > 3, name, ": has no tokens; expected llama2.c's tokenizer.bin");
  pieces.unknown = 0;
  pieces.bos = 1;
  pieces.eos = 2;
  return spec_of(pieces, name);
}

}  // namespace lamina::text
