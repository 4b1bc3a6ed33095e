#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/grammar/code_set.h"
#include "lamina/text/grammar/regex_syntax.h"

namespace lamina::text::grammar {

inline constexpr size_t kMaxCharNfaStates = 50'000;

/// A nondeterministic automaton over code points. State 0 is the start.
struct CharNfa {
  struct Edge {
    CodeSet set;
    uint32_t to = 0;
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<uint32_t> empty;  ///< targets of transitions that consume nothing
    bool accepts = false;
  };
  std::vector<State> states;
};

/// Whether an expression must match the whole text, or a part of it.
enum class Matching { whole, search };

/// Thompson's construction. Counted repetitions are expanded and anchors are resolved, so the automaton needs no
/// assertions. An expression with more than kMaxCharNfaStates states is an Error. `name` is the source's name in
/// messages.
CharNfa regex_nfa(const RegexNode& regex, Matching matching, const std::string& name);

/// regex_nfa() of a pattern.
CharNfa pattern_nfa(std::string_view pattern, Matching matching, const std::string& name);

}  // namespace lamina::text::grammar
