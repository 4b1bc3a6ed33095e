#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

/// Ids 0 … 255 are the bytes; special tokens follow. "<|endoftext|>" among them becomes eos().
std::unique_ptr<Tokenizer> byte_tokenizer(const std::vector<std::string>& specials = {});

struct CharacterOptions {
  /// Replaces characters that are not in the corpus, for example "<unk>". Empty: such characters are an Error.
  std::string unknown;
  std::vector<std::string> specials;
  /// 256 more tokens, "<0x00>" to "<0xFF>": a character that is not in the corpus becomes its UTF-8 bytes.
  bool byte_fallback = false;
};
/// The distinct code points of the corpus, in order; then the bytes of the fallback, the unknown token and the special
/// tokens. A corpus that is not UTF-8 is an Error without a byte fallback.
std::unique_ptr<Tokenizer> character_tokenizer(std::string_view corpus, const CharacterOptions& options = {});
std::unique_ptr<Tokenizer> character_tokenizer(const std::vector<std::string_view>& corpora,
                                               const CharacterOptions& options = {});

}  // namespace lamina::text
