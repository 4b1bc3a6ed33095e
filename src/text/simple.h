#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

/// A byte tokenizer: ids 0 … 255 are the bytes, followed by the special tokens. A special token "<|endoftext|>" becomes
/// eos().
std::unique_ptr<Tokenizer> byte_tokenizer(const std::vector<std::string>& specials = {});

/// Options of character_tokenizer().
struct CharacterOptions {
  /// Token for characters that are not in the corpus, for example "<unk>". If empty, such characters are an Error.
  std::string unknown;
  std::vector<std::string> specials;  ///< special tokens; they have the last ids
  /// Adds 256 tokens, "<0x00>" to "<0xFF>". A character that is not in the corpus is then encoded as its UTF-8 bytes.
  bool byte_fallback = false;
};
/// A character tokenizer. The ids are, in this order: the sorted code points of the corpus, the fallback bytes, the
/// unknown token, the special tokens. Without byte fallback, a corpus that is not UTF-8 is an Error.
std::unique_ptr<Tokenizer> character_tokenizer(std::string_view corpus, const CharacterOptions& options = {});
/// A character tokenizer with the characters of several texts.
std::unique_ptr<Tokenizer> character_tokenizer(const std::vector<std::string_view>& corpora,
                                               const CharacterOptions& options = {});

}  // namespace lamina::text
