#pragma once

#include <string>
#include <vector>

#include "lamina/text/json_lists.h"
#include "lamina/text/spec.h"

namespace lamina::text {

// Steps that the readers of several formats share. `name` stands in messages.

/// Ids as files give them: far more than a vocabulary has is an Error rather than a huge table.
TokenId checked_id(int64_t id, const std::string& token, const std::string& name);

/// Puts entries and merges, as byte-level or other files list them, into a spec whose symbols and fallback are set.
void add_lists(TokenizerSpec& spec, const JsonLists& lists, const std::string& name);
/// Adds a token to be cut out of text. A special one's entry becomes one that ordinary text cannot reach.
void add_token(TokenizerSpec& spec, AddedToken token);

/// Special tokens behind all others; "<|endoftext|>" and its like become eos.
void add_specials(TokenizerSpec& spec, const std::vector<std::string>& specials);

/// What the end of a text is called by convention, where nothing says which token it is.
void guess_eos(TokenizerSpec& spec);

}  // namespace lamina::text
