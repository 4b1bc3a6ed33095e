#pragma once

#include <string>
#include <vector>

#include "lamina/text/spec.h"

namespace lamina::text {

/// A way of cutting text that vocabularies share, and the special tokens that go with it in tiktoken's files.
struct Pattern {
  std::string name;
  std::string regex;
  std::vector<AddedToken> specials;
};
const std::vector<Pattern>& patterns();
/// An unknown name is an Error that lists them.
const Pattern& pattern_named(const std::string& name);
/// The name of the pattern with this expression, or empty.
std::string name_of_pattern(const std::string& regex);

}  // namespace lamina::text
