#pragma once

#include <string>
#include <string_view>

#include "lamina/text/json_document.h"
#include "lamina/text/spec.h"

namespace lamina::text {

/// A Hugging Face tokenizer.json. What would change its tokens and is not understood is an Error that names it.
TokenizerSpec read_json(std::string_view text, const std::string& name);

// The parts of a tokenizer.json around its model.
void read_normalizer(const json& node, TokenizerSpec& spec, const std::string& name);
void read_pre_tokenizer(const json& node, TokenizerSpec& spec, const std::string& name);
void read_decoder(const json& node, TokenizerSpec& spec, const std::string& name);
void read_post_processor(const json& node, TokenizerSpec& spec, const std::string& name);

}  // namespace lamina::text
