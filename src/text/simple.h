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
  std::string unknown;  ///< stands for characters that the corpus has not, "<unk>"; empty: those are an Error
  std::vector<std::string> specials;
};
/// The distinct code points of the corpus, in order; then unknown, then special tokens. Text that is no UTF-8 is an
/// Error.
std::unique_ptr<Tokenizer> character_tokenizer(std::string_view corpus, const CharacterOptions& options = {});
std::unique_ptr<Tokenizer> character_tokenizer(const std::vector<std::string_view>& corpora,
                                               const CharacterOptions& options = {});

}  // namespace lamina::text
