#include "lamina/text/grammar/char_nfa.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lamina/base/error.h"

namespace lamina::text::grammar {
namespace {

constexpr size_t kMaxCharNfaRanges = 1'000'000;

struct AnchoredState {
  std::vector<CharNfa::Edge> edges;
  std::vector<uint32_t> empty;
  std::vector<uint32_t> begin;  // usable only before the first character
  std::vector<uint32_t> end;    // usable only after the last character
};

/// Builds an automaton that still has anchors. A fragment leads from the given state to the returned state.
class Thompson {
 public:
  explicit Thompson(const std::string& name) : name_(name) {}

  uint32_t add_state() {
    LAMINA_CHECK(states.size() < kMaxCharNfaStates, name_, ": the regular expression expands to more than ",
                 kMaxCharNfaStates, " states; lower its repetition counts");
    states.emplace_back();
    return static_cast<uint32_t>(states.size() - 1);
  }

  void count_ranges(const CodeSet& set) {
    ranges_ += set.ranges().size();
    LAMINA_CHECK(ranges_ <= kMaxCharNfaRanges, name_, ": the classes of the regular expression have more than ",
                 kMaxCharNfaRanges, " ranges; use fewer or simpler classes");
  }

  uint32_t build(const RegexNode& node, uint32_t from) {
    switch (node.kind) {
      case RegexNode::Kind::set:
        count_ranges(node.set);
        return step(from, [&](AnchoredState& s, uint32_t to) { s.edges.push_back({node.set, to}); });
      case RegexNode::Kind::begin: return step(from, [](AnchoredState& s, uint32_t to) { s.begin.push_back(to); });
      case RegexNode::Kind::end: return step(from, [](AnchoredState& s, uint32_t to) { s.end.push_back(to); });
      case RegexNode::Kind::sequence: {
        uint32_t at = skip(from);
        for (const RegexNode& child : node.children) at = build(child, at);
        return at;
      }
      case RegexNode::Kind::choice: {
        const uint32_t to = add_state();
        for (const RegexNode& child : node.children) states[build(child, skip(from))].empty.push_back(to);
        return to;
      }
      case RegexNode::Kind::repeat: return repeat(node, from);
    }
    return from;
  }

  std::vector<AnchoredState> states;

 private:
  template <class Connect>
  uint32_t step(uint32_t from, const Connect& connect) {
    const uint32_t to = add_state();
    connect(states[from], to);
    return to;
  }
  uint32_t skip(uint32_t from) {
    return step(from, [](AnchoredState& s, uint32_t to) { s.empty.push_back(to); });
  }

  uint32_t repeat(const RegexNode& node, uint32_t from) {
    const RegexNode& body = node.children[0];
    uint32_t at = skip(from);
    for (uint32_t i = 0; i < node.min; ++i) at = build(body, skip(at));
    if (node.max == kUnbounded) {
      const uint32_t loop = skip(at);
      states[build(body, loop)].empty.push_back(loop);
      return skip(loop);
    }
    const uint32_t to = add_state();
    for (uint32_t i = node.min; i < node.max; ++i) {
      states[at].empty.push_back(to);
      at = build(body, skip(at));
    }
    states[at].empty.push_back(to);
    return to;
  }

  const std::string& name_;
  size_t ranges_ = 0;
};

/// Removes anchors: copies the automaton for each of four situations (a character was read or not; the end was asserted
/// or not) and keeps the reachable states. Anchors then become ordinary empty transitions.
CharNfa resolve_anchors(const std::vector<AnchoredState>& anchored, uint32_t final) {
  constexpr uint32_t kRead = 1;
  constexpr uint32_t kEnded = 2;
  CharNfa nfa;
  std::vector<std::array<uint32_t, 4>> ids(anchored.size(), {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX});
  std::vector<std::pair<uint32_t, uint32_t>> todo;
  const auto id_of = [&](uint32_t state, uint32_t situation) {
    uint32_t& id = ids[state][situation];
    if (id == UINT32_MAX) {
      id = static_cast<uint32_t>(nfa.states.size());
      nfa.states.emplace_back();
      todo.emplace_back(state, situation);
    }
    return id;
  };
  id_of(0, 0);
  while (!todo.empty()) {
    const auto [state, situation] = todo.back();
    todo.pop_back();
    const AnchoredState& source = anchored[state];
    CharNfa::State copy;
    copy.accepts = state == final;
    for (const uint32_t to : source.empty) copy.empty.push_back(id_of(to, situation));
    if ((situation & kRead) == 0) {
      for (const uint32_t to : source.begin) copy.empty.push_back(id_of(to, situation));
    }
    for (const uint32_t to : source.end) copy.empty.push_back(id_of(to, situation | kEnded));
    if ((situation & kEnded) == 0) {
      for (const CharNfa::Edge& edge : source.edges) copy.edges.push_back({edge.set, id_of(edge.to, kRead)});
    }
    nfa.states[ids[state][situation]] = std::move(copy);
  }
  return nfa;
}

}  // namespace

CharNfa regex_nfa(const RegexNode& regex, Matching matching, const std::string& name) {
  Thompson builder(name);
  uint32_t at = builder.add_state();
  if (matching == Matching::search) builder.states[at].edges.push_back({CodeSet::all(), at});
  at = builder.build(regex, at);
  if (matching == Matching::search) {
    const uint32_t rest = builder.add_state();
    builder.states[at].empty.push_back(rest);
    builder.states[rest].edges.push_back({CodeSet::all(), rest});
    at = rest;
  }
  return resolve_anchors(builder.states, at);
}

CharNfa pattern_nfa(std::string_view pattern, Matching matching, const std::string& name) {
  return regex_nfa(parse_regex(pattern, name), matching, name);
}

}  // namespace lamina::text::grammar
