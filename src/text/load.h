#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

/// Settings that a tokenizer's file does not contain.
struct LoadOptions {
  std::string pattern;  ///< split pattern for a tiktoken file, which contains none: gpt2, p50k, cl100k, o200k, llama3
};

/// Loads a tokenizer from a file, or from a folder with one of these (the first that exists):
/// - `tokenizer.json`, as the Hugging Face library and to_json() write it;
/// - `vocab.json` with `merges.txt`, or `encoder.json` with `vocab.bpe`: GPT-2's files;
/// - `tokenizer.model`, `spiece.model`, `sentencepiece.bpe.model`: SentencePiece's, or in tiktoken's format;
/// - `tokenizer.bin`: llama2.c's;
/// - `vocab.txt`: BERT's WordPiece vocabulary;
/// - a `.tiktoken` file.
/// A `tokenizer_config.json` in the same folder may name the BOS and EOS tokens. If the tokenizer names no EOS token,
/// `generation_config.json` and `config.json` may.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path, const LoadOptions& options = {});

/// The file that load_tokenizer() would read from a folder. Empty if there is none.
std::string tokenizer_file(const std::string& folder);
/// The tokenizer file of a model. For a folder, the one inside. For a model in a single file: NAME.tokenizer.json,
/// NAME.tokenizer.bin, or the tokenizer in its folder. Empty if there is none.
std::string tokenizer_of_model(const std::string& model);

/// Parses a tokenizer.json. `name` is the file's name in messages.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view text, const std::string& name);

/// Writes tokenizer.json and tokenizer_config.json into an existing folder.
void save_tokenizer(const Tokenizer& tokenizer, const std::string& folder);
/// Writes only tokenizer_config.json: the names of BOS and EOS, and the class that transformers uses to load it.
void save_tokenizer_config(const Tokenizer& tokenizer, const std::string& folder);

}  // namespace lamina::text
