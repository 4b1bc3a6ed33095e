#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lamina/text/grammar/rules.h"

namespace lamina::text::grammar {

inline constexpr size_t kMaxProgramStates = 600'000;

/// A grammar as a recursive transition network: one nondeterministic automaton over bytes per rule, whose edges read a
/// byte, read nothing, or call another rule. Every state can reach the end of its rule.
struct Program {
  struct ByteEdge {
    uint8_t first = 0;
    uint8_t last = 0;
    uint32_t to = 0;
  };
  struct Call {
    RuleId rule = 0;
    uint32_t to = 0;
  };
  struct State {
    std::vector<ByteEdge> bytes;
    std::vector<Call> calls;
    std::vector<uint32_t> empty;
  };
  /// A rule, or the body of a counted repetition, which the machine enters again until its counter is in [min, max].
  struct Rule {
    std::string name;
    uint32_t start = 0;
    uint32_t final = 0;
    bool counted = false;
    uint32_t min = 0;
    uint32_t max = 0;
    uint32_t after = 0;  ///< counted: the state after the repetition
  };

  std::vector<State> states;
  std::vector<Rule> rules;  ///< rule 0 is the root
  /// Bytes that no edge distinguishes have one class.
  std::array<uint8_t, 256> byte_class{};
  int n_classes = 0;
};

/// Compiles the rules that `root` needs. Left recursion, an undefined rule, a grammar that matches no text or one
/// beyond the limits is an Error. `name` names the source.
Program compile(const Rules& rules, RuleId root, const std::string& name);

}  // namespace lamina::text::grammar
