#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/grammar/code_set.h"

namespace lamina::text::grammar {

inline constexpr uint32_t kUnbounded = UINT32_MAX;
inline constexpr size_t kMaxRegexBytes = size_t{1} << 16;
inline constexpr int kMaxNesting = 200;  ///< maximum nesting of groups; prevents stack overflow in recursive functions

/// Syntax tree of a regular expression over code points.
struct RegexNode {
  enum class Kind { set, sequence, choice, repeat, begin, end };
  Kind kind = Kind::sequence;
  CodeSet set;                      ///< Kind::set
  std::vector<RegexNode> children;  ///< sequence, choice; repeat has one
  uint32_t min = 0;                 ///< repeat
  uint32_t max = kUnbounded;
};

/// Parses the dialect of ECMA-262 that JSON Schema uses, plus PCRE's `\A`, `\z`, `\h`, `\x{…}` and `(?P<name>…)`:
/// literals, escapes, classes, `.`, groups, alternation, greedy and lazy quantifiers, counted repetition, `^`, `$`, `\d
/// \w \s`, and `\p{…}` (general categories). Look-around, back-references, `\b` and inline flags are an Error, because
/// they cannot be decided from left to right without memory. `name` is the source's name in messages.
RegexNode parse_regex(std::string_view pattern, const std::string& name);

/// The set of `\s`: white space and line terminators of ECMA-262.
CodeSet white_space();

}  // namespace lamina::text::grammar
