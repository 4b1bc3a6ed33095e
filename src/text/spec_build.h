#pragma once

#include <string>
#include <vector>

#include "lamina/text/json_lists.h"
#include "lamina/text/spec.h"

namespace lamina::text {

// Steps shared by the readers of several formats. `name` names the file in messages.

/// A character without an entry counts this much less than the least probable entry, in Unigram models.
inline constexpr double kUnknownPenalty = 10.0;

/// Checks an id from a file. An id far beyond any vocabulary is an Error, because it would need a huge table.
TokenId checked_id(int64_t id, const std::string& token, const std::string& name);

/// Adds entries and merges, as the file lists them, to a spec whose symbols and fallback are already set.
void add_lists(TokenizerSpec& spec, const JsonLists& lists, const std::string& name);
/// Adds the entries of a Unigram vocabulary with their scores; the unknown score is Hugging Face's: 10 below the
/// lowest.
void add_scored(TokenizerSpec& spec, const std::vector<std::pair<std::string, double>>& scored,
                const std::string& name);
/// Adds an added token. If it is special, ordinary text can no longer encode to its entry.
void add_token(TokenizerSpec& spec, AddedToken token);

/// Appends special tokens after all others; "<|endoftext|>" and similar names become eos.
void add_specials(TokenizerSpec& spec, const std::vector<std::string>& specials);

/// Sets eos by its conventional names if the file does not name it.
void guess_eos(TokenizerSpec& spec);

}  // namespace lamina::text
