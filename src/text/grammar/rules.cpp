#include "lamina/text/grammar/rules.h"

#include <utility>

#include "lamina/base/error.h"

namespace lamina::text::grammar {

ExprId Rules::add(Expr expression) {
  LAMINA_CHECK(expressions_.size() < kMaxExpressions, "the grammar has more than ", kMaxExpressions,
               " expressions; make it smaller");
  expressions_.push_back(std::move(expression));
  return static_cast<ExprId>(expressions_.size() - 1);
}

ExprId Rules::literal(std::string_view bytes) {
  Expr expression{Expr::Kind::literal};
  expression.bytes = bytes;
  return add(std::move(expression));
}

ExprId Rules::chars(CodeSet set, Spelling spelling) {
  Expr expression{Expr::Kind::chars, spelling};
  expression.set = std::move(set);
  return add(std::move(expression));
}

ExprId Rules::automaton(CharNfa nfa, Spelling spelling) {
  Expr expression{Expr::Kind::automaton, spelling};
  automaton_states_ += nfa.states.size();
  LAMINA_CHECK(automaton_states_ <= kMaxExpressions, "the grammar's patterns have more than ", kMaxExpressions,
               " states; make them smaller");
  expression.index = static_cast<uint32_t>(automata_.size());
  automata_.push_back(std::move(nfa));
  return add(std::move(expression));
}

ExprId Rules::sequence(std::vector<ExprId> parts) {
  if (parts.size() == 1) return parts[0];
  Expr expression{Expr::Kind::sequence};
  expression.children = std::move(parts);
  return add(std::move(expression));
}

ExprId Rules::choice(std::vector<ExprId> parts) {
  if (parts.size() == 1) return parts[0];
  Expr expression{Expr::Kind::choice};
  expression.children = std::move(parts);
  return add(std::move(expression));
}

ExprId Rules::repeat(ExprId part, uint32_t min, uint32_t max) {
  if (min == 1 && max == 1) return part;
  Expr expression{Expr::Kind::repeat};
  expression.children = {part};
  expression.min = min;
  expression.max = max;
  return add(std::move(expression));
}

ExprId Rules::list(std::vector<ListItem> items, ExprId separator) {
  Expr expression{Expr::Kind::list};
  for (const ListItem& item : items) expression.children.push_back(item.expression);
  expression.children.push_back(separator);
  expression.items = std::move(items);
  return add(std::move(expression));
}

ExprId Rules::rule(RuleId rule) {
  Expr expression{Expr::Kind::rule};
  expression.index = rule;
  return add(std::move(expression));
}

RuleId Rules::add_rule(std::string name) {
  rules_.push_back({std::move(name)});
  return static_cast<RuleId>(rules_.size() - 1);
}

void Rules::define(RuleId rule, ExprId body) {
  rules_[rule].body = body;
  rules_[rule].defined = true;
}

namespace {

bool accepts_empty(const CharNfa& nfa) {
  std::vector<uint8_t> seen(nfa.states.size(), 0);
  std::vector<uint32_t> todo = {0};
  seen[0] = 1;
  while (!todo.empty()) {
    const CharNfa::State& state = nfa.states[todo.back()];
    todo.pop_back();
    if (state.accepts) return true;
    for (const uint32_t to : state.empty) {
      if (std::exchange(seen[to], 1) == 0) todo.push_back(to);
    }
  }
  return false;
}

}  // namespace

std::vector<uint8_t> nullable_expressions(const Rules& rules) {
  const std::vector<Expr>& all = rules.expressions();
  std::vector<uint8_t> nullable(all.size(), 0);
  std::vector<size_t> missing(all.size(), 1);  // number of children that must still become nullable
  std::vector<std::vector<ExprId>> parents(all.size());
  std::vector<std::vector<ExprId>> uses(rules.rules().size());
  std::vector<std::vector<RuleId>> bodies(all.size());
  std::vector<ExprId> todo;
  const auto set = [&](ExprId id) {
    if (std::exchange(nullable[id], 1) == 0) todo.push_back(id);
  };
  for (RuleId rule = 0; rule < rules.rules().size(); ++rule) bodies[rules.rules()[rule].body].push_back(rule);
  for (ExprId id = 0; id < all.size(); ++id) {
    const Expr& expression = all[id];
    for (const ExprId child : expression.children) parents[child].push_back(id);
    if (expression.kind == Expr::Kind::rule) uses[expression.index].push_back(id);
    if (expression.kind == Expr::Kind::sequence) missing[id] = expression.children.size();
    const bool is_empty =
        (expression.kind == Expr::Kind::literal && expression.bytes.empty()) ||
        (expression.kind == Expr::Kind::sequence && expression.children.empty()) ||
        (expression.kind == Expr::Kind::repeat && expression.min == 0) || expression.kind == Expr::Kind::list ||
        (expression.kind == Expr::Kind::automaton && accepts_empty(rules.automata()[expression.index]));
    if (is_empty) set(id);
  }
  while (!todo.empty()) {
    const ExprId id = todo.back();
    todo.pop_back();
    for (const ExprId parent : parents[id]) {
      if (nullable[parent] == 0 && --missing[parent] == 0) set(parent);
    }
    for (const RuleId rule : bodies[id]) {
      for (const ExprId use : uses[rule]) set(use);
    }
  }
  return nullable;
}

}  // namespace lamina::text::grammar
