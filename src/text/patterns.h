#pragma once

#include <string>
#include <vector>

#include "lamina/text/spec.h"

namespace lamina::text {

/// A split pattern that vocabularies share, with the special tokens it implies for tiktoken files.
struct Pattern {
  std::string name;
  std::string regex;
  std::vector<AddedToken> specials;
};
const std::vector<Pattern>& patterns();
/// An unknown name is an Error that lists the known ones.
const Pattern& pattern_named(const std::string& name);
/// The name of the pattern with this regular expression, or an empty string.
std::string name_of_pattern(const std::string& regex);

/// WhitespaceSplit of Hugging Face's library: white space separates pieces and is removed.
SplitStep white_space_split();
bool is_white_space_split(const SplitStep& step);
/// BertPreTokenizer: white space is removed, and each punctuation character is a piece of its own.
std::vector<SplitStep> bert_splits();
/// Whether the steps are those of bert_splits().
bool are_bert_splits(const std::vector<SplitStep>& steps);

}  // namespace lamina::text
