#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/grammar/char_nfa.h"

namespace lamina::text::grammar {

inline constexpr size_t kMaxCharDfaStates = 50'000;
inline constexpr uint64_t kMaxDfaWork = 30'000'000;

/// The effort spent on deterministic automata for one grammar. More than kMaxDfaWork steps are an Error.
struct DfaWork {
  std::string name;  ///< name of the source, for messages
  uint64_t done = 0;
  void add(uint64_t steps);
};

/// A deterministic automaton over code points. Needed for operations that a nondeterministic one does not support:
/// intersection and difference. State 0 is the start. A code point without an edge is rejected.
struct CharDfa {
  struct Edge {
    char32_t first = 0;
    char32_t last = 0;
    uint32_t to = 0;
  };
  struct State {
    std::vector<Edge> edges;  ///< sorted, disjoint
    bool accepts = false;
  };
  std::vector<State> states;

  /// Whether the automaton accepts this text, which must be UTF-8.
  bool matches(std::string_view text) const;
  /// Whether it accepts no text at all.
  bool empty() const;
  CharNfa to_nfa() const;
};

/// Subset construction. More than kMaxCharDfaStates states are an Error.
CharDfa determinize(const CharNfa& nfa, DfaWork& work);
CharDfa intersect(const CharDfa& a, const CharDfa& b, DfaWork& work);
/// Accepts the texts that `a` accepts and `b` rejects.
CharDfa subtract(const CharDfa& a, const CharDfa& b, DfaWork& work);
/// Accepts exactly these UTF-8 texts.
CharDfa any_of(const std::vector<std::string>& texts, DfaWork& work);
/// Accepts every text of `min` to `max` code points; `max` may be kUnbounded.
CharDfa of_length(uint64_t min, uint64_t max, DfaWork& work);

}  // namespace lamina::text::grammar
