#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

struct LoadOptions {
  std::string pattern;  ///< of a tiktoken file, which does not say how text is cut: gpt2, p50k, cl100k, o200k, llama3
};

/// A tokenizer from a file, or from a folder that holds one (the first of these that is there):
/// - `tokenizer.json`, as the Hugging Face library and to_json() write it;
/// - `vocab.json` with `merges.txt`, or `encoder.json` with `vocab.bpe`: GPT-2's files;
/// - `tokenizer.model`: SentencePiece's, or in tiktoken's format;
/// - `tokenizer.bin`: llama2.c's;
/// - a `.tiktoken` file.
/// A `tokenizer_config.json` beside it may name the tokens at a text's beginning and end; where nothing in the
/// tokenizer names the end, `generation_config.json` and `config.json` may.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path, const LoadOptions& options = {});

/// The file that load_tokenizer reads of a folder; empty where it has none.
std::string tokenizer_file(const std::string& folder);
/// The tokenizer's file of a model: in the model's folder; for a model that is one file, NAME.tokenizer.json,
/// NAME.tokenizer.bin or the folder's. Empty where there is none.
std::string tokenizer_of_model(const std::string& model);

/// A tokenizer.json. `name` stands in messages.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view text, const std::string& name);

/// Writes tokenizer.json and tokenizer_config.json into an existing folder.
void save_tokenizer(const Tokenizer& tokenizer, const std::string& folder);
/// Writes tokenizer_config.json alone: the names of bos and eos, and the class that transformers loads it with.
void save_tokenizer_config(const Tokenizer& tokenizer, const std::string& folder);

}  // namespace lamina::text
