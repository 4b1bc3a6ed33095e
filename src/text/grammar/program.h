#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lamina/text/grammar/rules.h"

namespace lamina::text::grammar {

inline constexpr size_t kMaxProgramStates = 400'000;

/// A grammar as a recursive transition network. Each rule is a nondeterministic automaton over bytes, whose edges read
/// a byte, read nothing, or call another rule. The end of its rule can be reached from every state.
struct Program {
  struct ByteEdge {
    uint8_t first = 0;
    uint8_t last = 0;
    uint32_t to = 0;
  };
  struct Call {
    RuleId rule = 0;
    uint32_t to = 0;
    uint32_t site = 0;  ///< for a counted rule: 1 + index in `repetitions`; 0: an ordinary call
  };
  struct State {
    std::vector<ByteEdge> bytes;
    std::vector<Call> calls;
    std::vector<uint32_t> empty;
  };
  /// A rule, or the body of a counted repetition.
  struct Rule {
    std::string name;
    uint32_t start = 0;
    uint32_t final = 0;
    bool counted = false;
  };
  /// A place where a counted rule is repeated `min` to `max` times.
  struct Repetition {
    RuleId rule = 0;
    uint32_t min = 0;
    uint32_t max = 0;    ///< may be kUnbounded
    uint32_t after = 0;  ///< the state after the repetition
  };

  std::vector<State> states;
  std::vector<Rule> rules;  ///< rule 0 is the root
  std::vector<Repetition> repetitions;
  /// Bytes that no edge distinguishes are in the same class.
  std::array<uint8_t, 256> byte_class{};
  int n_classes = 0;

  size_t bytes() const;  ///< approximate memory in bytes
};

/// Compiles the rules that `root` needs. Throws an Error for left recursion, an undefined rule, a grammar that matches
/// no text, or one that exceeds a limit. `name` is the source's name in messages.
Program compile(const Rules& rules, RuleId root, const std::string& name);

}  // namespace lamina::text::grammar
