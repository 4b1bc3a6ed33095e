#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "lamina/text/tokenizer.h"

namespace lamina::text {

/// A tokenizer from a file, or from a folder that holds one (the first of these that is there):
/// - `tokenizer.json`, as the Hugging Face library and to_json() write it.
/// What lies beside it may name the tokens at a text's beginning and end: `tokenizer_config.json`, or
/// `generation_config.json` and `config.json`.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

/// A tokenizer.json. `name` stands in messages.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view text, const std::string& name);

/// Writes tokenizer.json, and tokenizer_config.json with the names of bos and eos, into an existing folder.
void save_tokenizer(const Tokenizer& tokenizer, const std::string& folder);

}  // namespace lamina::text
