#pragma once

#include <string>
#include <vector>

#include "lamina/text/json_lists.h"
#include "lamina/text/spec.h"

namespace lamina::text {

// Steps that the readers of several formats share. `name` is the file's name in messages.

/// In Unigram models, the log-probability of a character without an entry is this much below that of the least probable
/// entry.
inline constexpr double kUnknownPenalty = 10.0;

/// Checks an id from a file. An id far beyond any real vocabulary is an Error, because it would need a huge table.
TokenId checked_id(int64_t id, const std::string& token, const std::string& name);

/// Adds entries and merges, in the order of the file, to a spec whose symbols and fallback are already set.
void add_lists(TokenizerSpec& spec, const JsonLists& lists, const std::string& name);
/// Adds the entries of a Unigram vocabulary with their scores. The unknown score is that of Hugging Face: 10 below the
/// lowest score.
void add_scored(TokenizerSpec& spec, const std::vector<std::pair<std::string, double>>& scored,
                const std::string& name);
/// Adds an added token. If it is special, ordinary text can no longer be encoded to its entry.
void add_token(TokenizerSpec& spec, AddedToken token);

/// Appends special tokens after all other ids. "<|endoftext|>" and similar names become eos.
void add_specials(TokenizerSpec& spec, const std::vector<std::string>& specials);

/// Sets eos by its usual names, if the file does not give it.
void guess_eos(TokenizerSpec& spec);

}  // namespace lamina::text
