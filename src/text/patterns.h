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

}  // namespace lamina::text
