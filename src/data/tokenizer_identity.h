#pragma once

#include <cstdint>
#include <string>

#include "lamina/data/token_file.h"
#include "lamina/text/tokenizer.h"

namespace lamina::data {

/// The hash by which a token file names its tokenizer: of Tokenizer::to_json().
uint64_t tokenizer_hash(const text::Tokenizer& tokenizer);

/// Which tokenizer something belongs to.
struct TokenizerIdentity {
  uint64_t hash = 0;  ///< 0: unknown, as for llm.c and nanoGPT files
  std::string about;  ///< for messages: "4f1c… (characters, 65 tokens, runs/a/tokenizer.json)"
};
/// `path` is where the tokenizer was read from.
TokenizerIdentity identity_of(const text::Tokenizer& tokenizer, const std::string& path);
TokenizerIdentity identity_of(const TokenFile& file);

/// One side of a comparison: what it is, as "the model runs/a", and its tokenizer.
struct TokenizerUse {
  std::string what;
  TokenizerIdentity tokenizer;
};
/// An Error that names both tokenizers if they differ. Unknown ones are accepted. `advice` says what to do.
void check_same_tokenizer(const TokenizerUse& a, const TokenizerUse& b, const std::string& advice);
/// The same for a token file that a model is to read; `path` is where the model's tokenizer lies.
void check_tokens_of_model(const TokenFile& file, const std::string& model, const text::Tokenizer& tokenizer,
                           const std::string& path);

}  // namespace lamina::data
