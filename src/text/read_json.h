#pragma once

#include <string>
#include <string_view>

#include "lamina/text/json_document.h"
#include "lamina/text/spec.h"

namespace lamina::text {

/// Reads a Hugging Face tokenizer.json. Unknown content that could change the tokens is an Error that names it.
TokenizerSpec read_json(std::string_view text, const std::string& name);

// Readers of the sections of a tokenizer.json, except the model.
void read_normalizer(const json& node, TokenizerSpec& spec, const std::string& name);
void read_pre_tokenizer(const json& node, TokenizerSpec& spec, const std::string& name);
void read_decoder(const json& node, TokenizerSpec& spec, const std::string& name);
void read_post_processor(const json& node, TokenizerSpec& spec, const std::string& name);

}  // namespace lamina::text
