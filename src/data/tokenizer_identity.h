#pragma once

#include <cstdint>
#include <string>

#include "lamina/data/token_file.h"
#include "lamina/text/tokenizer.h"

namespace lamina::data {

/// The hash of Tokenizer::to_json(), by which a token file identifies its tokenizer.
uint64_t tokenizer_hash(const text::Tokenizer& tokenizer);

/// Identifies the tokenizer of a model or token file.
struct TokenizerIdentity {
  uint64_t hash = 0;  ///< 0: unknown, as for llm.c and nanoGPT files
  std::string about;  ///< for messages: "4f1c… (characters, 65 tokens, runs/a/tokenizer.json)"
};
/// `path` is the file or folder of the tokenizer.
TokenizerIdentity identity_of(const text::Tokenizer& tokenizer, const std::string& path);
TokenizerIdentity identity_of(const TokenFile& file);

/// One side of a comparison: its description, e.g. "the model runs/a", and its tokenizer.
struct TokenizerUse {
  std::string what;
  TokenizerIdentity tokenizer;
};
/// Throws an Error that names both tokenizers if they differ. Unknown ones pass. `advice` says what to do.
void check_same_tokenizer(const TokenizerUse& a, const TokenizerUse& b, const std::string& advice);
/// Checks that a token file fits a model. `path` is the file or folder of the model's tokenizer.
void check_tokens_of_model(const TokenFile& file, const std::string& model, const text::Tokenizer& tokenizer,
                           const std::string& path);

}  // namespace lamina::data
