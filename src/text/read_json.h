#pragma once

#include <string>
#include <string_view>

#include "lamina/text/json_document.h"
#include "lamina/text/json_lists.h"
#include "lamina/text/spec.h"

namespace lamina::text {

/// A Hugging Face tokenizer.json. What would change its tokens and is not understood is an Error that names it.
TokenizerSpec read_json(std::string_view text, const std::string& name);

/// Ids as files give them: far more than a vocabulary has is an Error rather than a huge table.
TokenId checked_id(int64_t id, const std::string& token, const std::string& name);

/// Puts entries and merges, as byte-level or other files list them, into a spec whose symbols and fallback are set.
void add_lists(TokenizerSpec& spec, const JsonLists& lists, const std::string& name);
/// Adds a token to be cut out of text. A special one's entry becomes one that ordinary text cannot reach.
void add_token(TokenizerSpec& spec, AddedToken token);

// The parts of a tokenizer.json around its model.
void read_normalizer(const json& node, TokenizerSpec& spec, const std::string& name);
void read_pre_tokenizer(const json& node, TokenizerSpec& spec, const std::string& name);
void read_decoder(const json& node, TokenizerSpec& spec, const std::string& name);
void read_post_processor(const json& node, TokenizerSpec& spec, const std::string& name);

/// What the end of a text is called by convention, where nothing says which token it is.
void guess_eos(TokenizerSpec& spec);

}  // namespace lamina::text
