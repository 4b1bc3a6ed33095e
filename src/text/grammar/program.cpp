#include "lamina/text/grammar/program.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>
#include <utility>

#include "lamina/base/error.h"
#include "lamina/text/grammar/program_checks.h"

namespace lamina::text::grammar {
namespace {

// A counted repetition becomes copies of its body, up to this many states in total; above that, a counter.
constexpr uint64_t kMaxCopiedStates = 48;
constexpr uint64_t kMaxCopies = 10'000;  // limit for a body that can be empty, which a counter cannot count

/// The JSON escape of a character that cannot be written directly in a JSON string. Empty if it can.
std::string json_escape(char32_t value) {
  switch (value) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\b': return "\\b";
    case '\f': return "\\f";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: break;
  }
  if (value >= 0x20) return {};
  char escape[8];
  std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(value));
  return escape;
}

class Compiler {
 public:
  Compiler(const Rules& rules, const std::string& name)
      : rules_(rules), name_(name), nullable_(nullable_expressions(rules)), ids_(rules.rules().size(), UINT32_MAX) {}

  Program compile(RuleId root) {
    id_of(root);
    for (size_t i = 0; i < pending_.size(); ++i) {
      const auto [source, id] = pending_[i];
      const Rules::Rule& rule = rules_.rules()[source];
      LAMINA_CHECK(rule.defined, name_, ": the rule ", rule.name, " is used but not defined");
      const uint32_t start = add_state();
      program_.rules[id].start = start;
      const uint32_t final = build(rule.body, start, 0);
      program_.rules[id].final = final;
    }
    LAMINA_CHECK(remove_dead_ends(program_), name_,
                 ": matches no text at all, not even an empty one; check its constraints");
    check_left_recursion(program_, name_);
    find_byte_classes(program_);
    return std::move(program_);
  }

 private:
  uint32_t add_state() {
    LAMINA_CHECK(program_.states.size() < kMaxProgramStates, name_, ": the grammar needs more than ", kMaxProgramStates,
                 " automaton states; make it smaller or lower its repetition counts");
    program_.states.emplace_back();
    return static_cast<uint32_t>(program_.states.size() - 1);
  }
  void add_empty(uint32_t from, uint32_t to) { program_.states[from].empty.push_back(to); }

  RuleId id_of(RuleId source) {
    RuleId& id = ids_[source];
    if (id == UINT32_MAX) {
      id = static_cast<RuleId>(program_.rules.size());
      program_.rules.push_back({rules_.rules()[source].name});
      pending_.emplace_back(source, id);
    }
    return id;
  }

  /// Adds an expression that begins at state `from`. Returns the state after it.
  uint32_t build(ExprId id, uint32_t from, int depth) {
    LAMINA_CHECK(depth <= 4 * kMaxNesting, name_, ": expressions are nested more than ", 4 * kMaxNesting, " deep");
    const Expr& expression = rules_.expressions()[id];
    switch (expression.kind) {
      case Expr::Kind::literal: {
        uint32_t at = from;
        for (const char c : expression.bytes)
          at = byte_step(at, static_cast<uint8_t>(c), static_cast<uint8_t>(c), add_state());
        return at;
      }
      case Expr::Kind::chars: {
        const uint32_t to = add_state();
        chars(expression.set, expression.spelling, from, to);
        return to;
      }
      case Expr::Kind::automaton: return automaton(rules_.automata()[expression.index], expression.spelling, from);
      case Expr::Kind::sequence: {
        uint32_t at = from;
        for (const ExprId child : expression.children) at = build(child, at, depth + 1);
        return at;
      }
      case Expr::Kind::choice: {
        const uint32_t to = add_state();
        for (const ExprId child : expression.children) {
          const uint32_t begin = add_state();
          add_empty(from, begin);
          add_empty(build(child, begin, depth + 1), to);
        }
        return to;
      }
      case Expr::Kind::repeat: return repeat(expression, from, depth + 1);
      case Expr::Kind::list: return list(expression, from, depth + 1);
      case Expr::Kind::rule: {
        const uint32_t to = add_state();
        const RuleId callee = id_of(expression.index);
        program_.states[from].calls.push_back({callee, to});
        return to;
      }
    }
    return from;
  }

  /// Two chains of states share the list's end: one before the first item was read, and one after.
  uint32_t list(const Expr& expression, uint32_t from, int depth) {
    const ExprId separator = expression.children.back();
    uint32_t none = add_state();
    uint32_t some = add_state();
    add_empty(from, none);
    for (const ListItem& item : expression.items) {
      const uint32_t next_none = add_state();
      const uint32_t next_some = add_state();
      add_empty(build(item.expression, none, depth), next_some);
      add_empty(build(item.expression, build(separator, some, depth), depth), next_some);
      if (!item.required) {
        add_empty(none, next_none);
        add_empty(some, next_some);
      }
      if (item.repeated) add_empty(build(item.expression, build(separator, next_some, depth), depth), next_some);
      none = next_none;
      some = next_some;
    }
    const uint32_t to = add_state();
    add_empty(none, to);
    add_empty(some, to);
    return to;
  }

  uint32_t byte_step(uint32_t from, uint8_t first, uint8_t last, uint32_t to) {
    program_.states[from].bytes.push_back({first, last, to});
    return to;
  }

  /// Adds edges for every character of the set. UTF-8 sequences with the same last bytes share states.
  void chars(const CodeSet& set, Spelling spelling, uint32_t from, uint32_t to) {
    CodeSet plain = set;
    if (spelling == Spelling::json_string) {
      CodeSet escaped(0, 0x1F);
      escaped.add('"');
      escaped.add('\\');
      const CodeSet with_escape = set.intersect(escaped);
      for (const auto& [first, last] : with_escape.ranges()) {
        for (char32_t value = first; value <= last; ++value) {
          const std::string escape = json_escape(value);
          uint32_t at = from;
          for (size_t i = 0; i < escape.size(); ++i) {
            const auto byte = static_cast<uint8_t>(escape[i]);
            at = byte_step(at, byte, byte, i + 1 == escape.size() ? to : add_state());
          }
        }
      }
      plain = set.intersect(escaped.complement());
    }
    std::vector<Utf8Sequence> sequences;
    for (const auto& [first, last] : plain.ranges()) append_utf8_sequences(first, last, sequences);
    std::map<std::tuple<uint8_t, uint8_t, uint32_t>, uint32_t> shared;  // (byte range, next state) → state before it
    for (const Utf8Sequence& sequence : sequences) {
      uint32_t next = to;
      for (int i = sequence.length - 1; i > 0; --i) {
        const auto [first, last] = sequence.bytes[static_cast<size_t>(i)];
        const auto [found, added] = shared.try_emplace({first, last, next}, 0);
        if (added) {
          found->second = add_state();
          byte_step(found->second, first, last, next);
        }
        next = found->second;
      }
      byte_step(from, sequence.bytes[0].first, sequence.bytes[0].second, next);
    }
  }

  uint32_t automaton(const CharNfa& nfa, Spelling spelling, uint32_t from) {
    std::vector<uint32_t> ids;
    for (size_t i = 0; i < nfa.states.size(); ++i) ids.push_back(add_state());
    const uint32_t to = add_state();
    add_empty(from, ids[0]);
    for (size_t i = 0; i < nfa.states.size(); ++i) {
      for (const CharNfa::Edge& edge : nfa.states[i].edges) chars(edge.set, spelling, ids[i], ids[edge.to]);
      for (const uint32_t target : nfa.states[i].empty) add_empty(ids[i], ids[target]);
      if (nfa.states[i].accepts) add_empty(ids[i], to);
    }
    return to;
  }

  uint32_t repeat(const Expr& expression, uint32_t from, int depth) {
    const ExprId body = expression.children[0];
    const bool unbounded = expression.max == kUnbounded;
    const uint64_t copies = unbounded ? uint64_t{expression.min} + 1 : expression.max;
    if (copies == 0) return from;
    const auto known = counted_.find(body);
    if (known != counted_.end() && copies > 1) return count(known->second, expression, from);
    // The size of a copy is known only after it was built. So build the first copy, which may become the counter's
    // body.
    const size_t before = program_.states.size();
    const uint32_t start = add_state();
    const uint32_t final = build(body, start, depth);
    const size_t size = program_.states.size() - before;
    const bool may_be_empty = nullable_[body] != 0;
    if (copies == 1 || may_be_empty || size * copies <= kMaxCopiedStates) {
      LAMINA_CHECK(copies <= kMaxCopies, name_, ": something that can be empty is repeated up to ", copies,
                   " times; at most ", kMaxCopies, " are allowed");
      return repeat_copied(expression, from, {start, final}, depth);
    }
    const auto id = static_cast<RuleId>(program_.rules.size());
    program_.rules.push_back({"repetition", start, final, true});
    counted_.emplace(body, id);
    return count(id, expression, from);
  }

  /// Repetitions of the same body share its states, and with them its masks.
  uint32_t count(RuleId rule, const Expr& expression, uint32_t from) {
    const uint32_t to = add_state();
    program_.repetitions.push_back({rule, expression.min, expression.max, to});
    program_.states[from].calls.push_back({rule, to, static_cast<uint32_t>(program_.repetitions.size())});
    if (expression.min == 0) add_empty(from, to);
    return to;
  }

  /// `first` has the start and the final state of a copy that is already built.
  uint32_t repeat_copied(const Expr& expression, uint32_t from, std::pair<uint32_t, uint32_t> first, int depth) {
    bool used = false;
    const auto copy = [&](uint32_t at) {
      const uint32_t start = std::exchange(used, true) ? add_state() : first.first;
      add_empty(at, start);
      return start == first.first ? first.second : build(expression.children[0], start, depth);
    };
    uint32_t at = from;
    for (uint32_t i = 0; i < expression.min; ++i) at = copy(at);
    if (expression.max == kUnbounded) {
      const uint32_t loop = add_state();
      add_empty(at, loop);
      add_empty(copy(loop), loop);
      const uint32_t to = add_state();
      add_empty(loop, to);
      return to;
    }
    const uint32_t to = add_state();
    for (uint32_t i = expression.min; i < expression.max; ++i) {
      add_empty(at, to);
      at = copy(at);
    }
    add_empty(at, to);
    return to;
  }

  const Rules& rules_;
  const std::string& name_;
  std::vector<uint8_t> nullable_;
  std::vector<RuleId> ids_;  // indexed by rule of `rules_`: its number in the program
  std::vector<std::pair<RuleId, RuleId>> pending_;
  std::map<ExprId, RuleId> counted_;  // body → rule
  Program program_;
};

}  // namespace

Program compile(const Rules& rules, RuleId root, const std::string& name) {
  return Compiler(rules, name).compile(root);
}

size_t Program::bytes() const {
  size_t sum = states.size() * sizeof(State) + repetitions.size() * sizeof(Repetition);
  for (const State& state : states) {
    sum += state.bytes.capacity() * sizeof(ByteEdge) + state.calls.capacity() * sizeof(Call) +
           state.empty.capacity() * sizeof(uint32_t);
  }
  for (const Rule& rule : rules) sum += sizeof(Rule) + rule.name.size();
  return sum;
}

}  // namespace lamina::text::grammar
