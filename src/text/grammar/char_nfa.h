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
    std::vector<uint32_t> empty;  ///< transitions that consume nothing
    bool accepts = false;
  };
  std::vector<State> states;
};

/// Whole-text or substring semantics.
enum class Matching { whole, search };

/// Thompson's construction; counted repetitions are expanded. Anchors are resolved, so that the automaton needs no
/// assertions. An expression of more than kMaxCharNfaStates states is an Error. `name` names the source.
CharNfa regex_nfa(const RegexNode& regex, Matching matching, const std::string& name);

/// regex_nfa of a parsed pattern.
CharNfa pattern_nfa(std::string_view pattern, Matching matching, const std::string& name);

}  // namespace lamina::text::grammar
