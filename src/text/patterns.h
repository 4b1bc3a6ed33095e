#pragma once

#include <string>
#include <vector>

#include "lamina/text/spec.h"

namespace lamina::text {

/// A split pattern that several vocabularies use, with the special tokens that it implies for tiktoken files.
struct Pattern {
  std::string name;
  std::string regex;
  std::vector<AddedToken> specials;
};
const std::vector<Pattern>& patterns();
/// The pattern with this name. For an unknown name, the Error lists the known ones.
const Pattern& pattern_named(const std::string& name);
/// The name of the pattern with this regular expression. Empty if it is not a known one.
std::string name_of_pattern(const std::string& regex);

/// WhitespaceSplit of Hugging Face's library: splits at white space and removes it.
SplitStep white_space_split();
bool is_white_space_split(const SplitStep& step);
/// BertPreTokenizer: removes white space, and makes each punctuation character a separate piece.
std::vector<SplitStep> bert_splits();
/// Whether the steps equal bert_splits().
bool are_bert_splits(const std::vector<SplitStep>& steps);

}  // namespace lamina::text
