#pragma once

#include <cstdint>
#include <string>

#include "lamina/data/token_file.h"
#include "lamina/text/tokenizer.h"

namespace lamina::data {

/// Hash of Tokenizer::to_json(). A token file identifies its tokenizer by this hash.
uint64_t tokenizer_hash(const text::Tokenizer& tokenizer);

/// Identity of the tokenizer of a model or token file.
struct TokenizerIdentity {
  uint64_t hash = 0;  ///< 0: unknown, as for llm.c and nanoGPT files
  std::string about;  ///< description for messages: "4f1c… (characters, 65 tokens, runs/a/tokenizer.json)"
};
/// The identity of a loaded tokenizer; `path` is its file or folder.
TokenizerIdentity identity_of(const text::Tokenizer& tokenizer, const std::string& path);
TokenizerIdentity identity_of(const TokenFile& file);

/// One side of a comparison: a description, for example "the model runs/a", and the tokenizer.
struct TokenizerUse {
  std::string what;
  TokenizerIdentity tokenizer;
};
/// Throws an Error that names both tokenizers if they differ. An unknown tokenizer matches any. `advice` says what to
/// do.
void check_same_tokenizer(const TokenizerUse& a, const TokenizerUse& b, const std::string& advice);
/// Checks that a token file fits a model. `path` is the file or folder of the model's tokenizer.
void check_tokens_of_model(const TokenFile& file, const std::string& model, const text::Tokenizer& tokenizer,
                           const std::string& path);

}  // namespace lamina::data
