#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lamina/text/template/value.h"

namespace lamina::text::jinja {

// The syntax tree of a template.

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

/// The arguments of a call, filter or test.
struct ArgumentSyntax {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;         ///< *list
  ExpressionPtr double_star;  ///< **dict
};

enum class ExpressionKind {
  constant,     // value
  name,         // name
  list,         // parts
  tuple,        // parts
  dict,         // parts: key, value, key, value, …
  attribute,    // parts[0].name
  item,         // parts[0][parts[1]]
  slice,        // parts[0][parts[1]:parts[2]:parts[3]]; missing ones are null
  call,         // parts[0](arguments)
  filter,       // parts[0] | name(arguments)
  test,         // parts[0] is name(arguments)
  unary,        // name parts[0]
  binary,       // parts[0] name parts[1]
  concat,       // parts[0] ~ parts[1] ~ …
  comparison,   // parts[0] operators[0] parts[1] operators[1] parts[2] …
  logical_and,  // parts[0] and parts[1]
  logical_or,   // parts[0] or parts[1]
  conditional,  // parts[0] if parts[1] else parts[2]; the last may be null
  block_text,   // the text of a {% filter %} or {% set %} block, input of its filter
};

/// An expression. The comment at its kind says what `parts` and `name` hold.
struct Expression {
  ExpressionKind kind = ExpressionKind::constant;
  size_t line = 1;
  size_t depth = 1;  ///< height of this tree
  std::string name;
  Value value;
  std::vector<ExpressionPtr> parts;
  std::vector<std::string> operators;
  ArgumentSyntax arguments;
};

/// The target of an assignment, left of `=` or after `for`: a name, namespace.member, or several targets.
struct Target {
  std::string name;
  std::string member;         ///< empty, unless it is a member of a namespace
  std::vector<Target> parts;  ///< for a tuple
  bool is_tuple = false;
};

struct Statement;
using Block = std::vector<Statement>;

/// Text outside of tags.
struct Data {
  std::string text;
};
/// {{ value }}
struct Print {
  ExpressionPtr value;
};
/// {% if %}; `branches` has the conditions of if and elif.
struct If {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};
/// {% for target in items if condition %}
struct For {
  Target target;
  ExpressionPtr items;
  ExpressionPtr condition;  ///< may be null
  Block body;
  Block otherwise;
  bool recursive = false;
};
/// {% set target = value %}
struct Set {
  Target target;
  ExpressionPtr value;
};
/// {% set target | filter %} … {% endset %}
struct SetBlock {
  Target target;
  ExpressionPtr filter;  ///< may be null
  Block body;
};
/// {% filter … %}
struct FilterBlock {
  ExpressionPtr filter;
  Block body;
};
/// {% with %}: a scope with variables.
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Block body;
};
/// {% macro %}
struct Macro {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  ///< names and default values; a default may be null
  Block body;
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};
/// {% call %}: calls a macro that gets the block as `caller`.
struct CallBlock {
  Macro caller;
  ExpressionPtr call;
};
struct Generation {  ///< {% generation %}: marks the assistant's text for training; rendered like its body
  Block body;
};
struct Break {};
struct Continue {};

/// A statement, with the line where it begins.
struct Statement {
  size_t line = 1;
  std::variant<Data, Print, If, For, Set, SetBlock, FilterBlock, With, Macro, CallBlock, Generation, Break, Continue>
      node;
};

}  // namespace lamina::text::jinja
