#include "lamina/text/grammar/char_dfa.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lamina/base/error.h"
#include "lamina/text/utf8.h"

namespace lamina::text::grammar {
namespace {

constexpr uint32_t kDeadState = UINT32_MAX;

void check_dfa_size(size_t states, const DfaWork& work) {
  LAMINA_CHECK(states <= kMaxCharDfaStates, work.name, ": the combined constraints on this string need more than ",
               kMaxCharDfaStates, " automaton states; simplify the patterns or lower the lengths and counts");
}

void add_empty_closure(const CharNfa& nfa, std::vector<uint32_t>& set, std::vector<uint8_t>& in) {
  for (size_t i = 0; i < set.size(); ++i) {
    for (const uint32_t to : nfa.states[set[i]].empty) {
      if (in[to] != 0) continue;
      in[to] = 1;
      set.push_back(to);
    }
  }
  for (const uint32_t state : set) in[state] = 0;
  std::sort(set.begin(), set.end());
}

/// The first code points of the intervals into which the ends of all edges divide the code points.
std::vector<char32_t> boundaries(const CharNfa& nfa, const std::vector<uint32_t>& set) {
  std::vector<char32_t> cuts;
  for (const uint32_t state : set) {
    for (const CharNfa::Edge& edge : nfa.states[state].edges) {
      for (const auto& [first, last] : edge.set.ranges()) {
        cuts.push_back(first);
        cuts.push_back(last + 1);
      }
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

void append_dfa_edge(CharDfa::State& state, char32_t first, char32_t last, uint32_t to) {
  if (!state.edges.empty() && state.edges.back().to == to && state.edges.back().last + 1 == first) {
    state.edges.back().last = last;
  } else {
    state.edges.push_back({first, last, to});
  }
}

/// Product automaton of `a` and `b`. `b` may have no state left; that accepts if `subtracting`, and rejects otherwise.
CharDfa dfa_product(const CharDfa& a, const CharDfa& b, bool subtracting, DfaWork& work) {
  CharDfa result;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> ids;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  const auto id_of = [&](uint32_t x, uint32_t y) {
    const auto [found, added] = ids.try_emplace({x, y}, static_cast<uint32_t>(pairs.size()));
    if (added) pairs.emplace_back(x, y);
    return found->second;
  };
  id_of(0, 0);
  static const CharDfa::State kNone;
  for (size_t i = 0; i < pairs.size(); ++i) {
    check_dfa_size(pairs.size(), work);
    const auto [x, y] = pairs[i];
    const CharDfa::State& left = a.states[x];
    const CharDfa::State& right = y == kDeadState ? kNone : b.states[y];
    CharDfa::State state;
    work.add(left.edges.size() + right.edges.size() + 1);
    state.accepts = left.accepts && (subtracting ? !right.accepts : right.accepts);
    size_t j = 0;
    for (const CharDfa::Edge& edge : left.edges) {
      char32_t first = edge.first;
      while (j < right.edges.size() && right.edges[j].last < first) ++j;
      for (size_t k = j; first <= edge.last;) {
        if (k == right.edges.size() || right.edges[k].first > edge.last) {
          if (subtracting) append_dfa_edge(state, first, edge.last, id_of(edge.to, kDeadState));
          break;
        }
        const CharDfa::Edge& other = right.edges[k];
        if (other.first > first) {
          if (subtracting) append_dfa_edge(state, first, other.first - 1, id_of(edge.to, kDeadState));
          first = other.first;
        }
        const char32_t last = std::min(edge.last, other.last);
        append_dfa_edge(state, first, last, id_of(edge.to, other.to));
        first = last + 1;
        if (other.last <= edge.last) ++k;
      }
    }
    result.states.push_back(std::move(state));
  }
  return result;
}

}  // namespace

void DfaWork::add(uint64_t steps) {
  done += steps;
  LAMINA_CHECK(done <= kMaxDfaWork, name,
               ": the constraints on strings and numbers take too long to combine; simplify them");
}

bool CharDfa::matches(std::string_view text) const {
  uint32_t state = 0;
  while (!text.empty()) {
    const CodePoint point = first_code_point(text.substr(0, 4));
    if (point.length == 0) return false;
    text.remove_prefix(point.length);
    const auto& edges = states[state].edges;
    const auto edge = std::find_if(edges.begin(), edges.end(), [&](const Edge& e) { return e.last >= point.value; });
    if (edge == edges.end() || edge->first > point.value) return false;
    state = edge->to;
  }
  return states[state].accepts;
}

bool CharDfa::empty() const {
  std::vector<uint8_t> seen(states.size(), 0);
  std::vector<uint32_t> todo = {0};
  seen[0] = 1;
  while (!todo.empty()) {
    const State& state = states[todo.back()];
    todo.pop_back();
    if (state.accepts) return false;
    for (const Edge& edge : state.edges) {
      if (std::exchange(seen[edge.to], 1) == 0) todo.push_back(edge.to);
    }
  }
  return true;
}

CharNfa CharDfa::to_nfa() const {
  CharNfa nfa;
  for (const State& state : states) {
    CharNfa::State copy;
    copy.accepts = state.accepts;
    std::map<uint32_t, CodeSet> targets;
    for (const Edge& edge : state.edges) targets[edge.to].add(edge.first, edge.last);
    for (auto& [to, set] : targets) copy.edges.push_back({std::move(set), to});
    nfa.states.push_back(std::move(copy));
  }
  return nfa;
}

CharDfa determinize(const CharNfa& nfa, DfaWork& work) {
  CharDfa result;
  std::map<std::vector<uint32_t>, uint32_t> ids;
  std::vector<std::vector<uint32_t>> sets;
  std::vector<uint8_t> in(nfa.states.size(), 0);
  const auto id_of = [&](std::vector<uint32_t> set) {
    for (const uint32_t state : set) in[state] = 1;
    add_empty_closure(nfa, set, in);
    const auto [found, added] = ids.try_emplace(set, static_cast<uint32_t>(sets.size()));
    if (added) sets.push_back(std::move(set));
    return found->second;
  };
  id_of({0});
  for (size_t i = 0; i < sets.size(); ++i) {
    check_dfa_size(sets.size(), work);
    const std::vector<uint32_t> set = sets[i];
    CharDfa::State state;
    const std::vector<char32_t> cuts = boundaries(nfa, set);
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      std::vector<uint32_t> targets;
      for (const uint32_t from : set) {
        for (const CharNfa::Edge& edge : nfa.states[from].edges) {
          if (edge.set.contains(cuts[c])) targets.push_back(edge.to);
        }
      }
      work.add(set.size() + targets.size());
      std::sort(targets.begin(), targets.end());
      targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
      if (!targets.empty()) append_dfa_edge(state, cuts[c], cuts[c + 1] - 1, id_of(std::move(targets)));
    }
    state.accepts = std::any_of(set.begin(), set.end(), [&](uint32_t s) { return nfa.states[s].accepts; });
    result.states.push_back(std::move(state));
  }
  return result;
}

CharDfa intersect(const CharDfa& a, const CharDfa& b, DfaWork& work) { return dfa_product(a, b, false, work); }
CharDfa subtract(const CharDfa& a, const CharDfa& b, DfaWork& work) { return dfa_product(a, b, true, work); }

CharDfa any_of(const std::vector<std::string>& texts, DfaWork& work) {
  CharNfa nfa;
  nfa.states.emplace_back();
  for (const std::string& text : texts) {
    uint32_t at = 0;
    for (size_t i = 0; i < text.size();) {
      const CodePoint point = first_code_point(std::string_view(text).substr(i, 4));
      LAMINA_CHECK(point.length > 0, work.name, ": a string is not valid UTF-8");
      nfa.states.emplace_back();
      const auto to = static_cast<uint32_t>(nfa.states.size() - 1);
      nfa.states[at].edges.push_back({{point.value, point.value}, to});
      at = to;
      i += point.length;
    }
    nfa.states[at].accepts = true;
  }
  return determinize(nfa, work);
}

CharDfa of_length(uint64_t min, uint64_t max, DfaWork& work) {
  const uint64_t last = max == kUnbounded ? min : max;
  check_dfa_size(std::min<uint64_t>(last, kMaxCharDfaStates) + (last >= kMaxCharDfaStates ? 1 : 0) + 1, work);
  CharDfa result;
  for (uint64_t i = 0; i <= last; ++i) {
    CharDfa::State state;
    state.accepts = i >= min;
    if (i < last) state.edges.push_back({0, kLastCodePoint, static_cast<uint32_t>(i + 1)});
    if (i == last && max == kUnbounded) state.edges.push_back({0, kLastCodePoint, static_cast<uint32_t>(i)});
    result.states.push_back(std::move(state));
  }
  return result;
}

}  // namespace lamina::text::grammar
