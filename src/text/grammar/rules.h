#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/grammar/char_nfa.h"
#include "lamina/text/grammar/code_set.h"

namespace lamina::text::grammar {

using ExprId = uint32_t;
using RuleId = uint32_t;

inline constexpr size_t kMaxExpressions = 500'000;

/// How the characters of an expression are written: unchanged, or as in a JSON string (quotes, backslashes and control
/// characters are escaped, in one fixed spelling).
enum class Spelling { plain, json_string };

/// An element of a separated list.
struct ListItem {
  ExprId expression = 0;
  bool required = true;
  bool repeated = false;  ///< may occur several times
};

/// An expression over bytes. Children have lower ids than their parents.
struct Expr {
  enum class Kind { literal, chars, automaton, sequence, choice, repeat, list, rule };
  Kind kind = Kind::sequence;
  Spelling spelling = Spelling::plain;  ///< chars, automaton
  std::string bytes;                    ///< literal
  CodeSet set;                          ///< chars
  uint32_t index = 0;                   ///< automaton; rule
  std::vector<ExprId> children;         ///< sequence, choice; repeat has one
  uint32_t min = 0;                     ///< repeat
  uint32_t max = 0;
  std::vector<ListItem> items;  ///< for list; children: their expressions, then the separator
};

/// A context-free grammar under construction. The readers of JSON schemas, regular expressions and GBNF write it.
class Rules {
 public:
  struct Rule {
    std::string name;  ///< used in messages
    ExprId body = 0;
    bool defined = false;
  };

  ExprId literal(std::string_view bytes);
  ExprId chars(CodeSet set, Spelling spelling = Spelling::plain);
  ExprId automaton(CharNfa nfa, Spelling spelling = Spelling::plain);
  ExprId sequence(std::vector<ExprId> parts);
  ExprId choice(std::vector<ExprId> parts);
  ExprId repeat(ExprId part, uint32_t min, uint32_t max);
  /// The items in this order, with the separator between two. Items that are not required may be left out.
  ExprId list(std::vector<ListItem> items, ExprId separator);
  ExprId optional(ExprId part) { return repeat(part, 0, 1); }
  ExprId rule(RuleId rule);
  ExprId nothing() { return choice({}); }  ///< matches no text
  ExprId empty() { return sequence({}); }  ///< matches the empty text only

  RuleId add_rule(std::string name);
  void define(RuleId rule, ExprId body);

  const std::vector<Expr>& expressions() const { return expressions_; }
  const std::vector<Rule>& rules() const { return rules_; }
  const std::vector<CharNfa>& automata() const { return automata_; }

 private:
  ExprId add(Expr expression);

  std::vector<Expr> expressions_;
  std::vector<Rule> rules_;
  std::vector<CharNfa> automata_;
  size_t automaton_states_ = 0;
};

/// Per expression: whether it can match the empty text.
std::vector<uint8_t> nullable_expressions(const Rules& rules);

}  // namespace lamina::text::grammar
