#pragma once

#include <string>
#include <string_view>

#include "lamina/text/grammar/program.h"

namespace lamina::text::grammar {

inline constexpr size_t kMaxGbnfBytes = size_t{1} << 20;

/// Compiles GBNF: `name ::= …` with "literals", [classes], `.`, groups, `|`, `* + ? {m} {m,} {m,n}` and # comments. A
/// rule ends at a line break that is outside parentheses and not next to a `|`.
Program compile_gbnf(std::string_view text, const std::string& name);

}  // namespace lamina::text::grammar
