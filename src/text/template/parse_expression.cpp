#include <algorithm>

#include "lamina/base/error.h"
#include "lamina/text/template/parser.h"

namespace lamina::text::jinja {

void Parser::check_depth(Expression& node) const {
  const auto include = [&](const ExpressionPtr& part) {
    if (part != nullptr) node.depth = std::max(node.depth, part->depth + 1);
  };
  std::ranges::for_each(node.parts, include);
  std::ranges::for_each(node.arguments.positional, include);
  for (const auto& [name, value] : node.arguments.named) include(value);
  include(node.arguments.star);
  include(node.arguments.double_star);
  if (node.depth > kMaxExpressionDepth) {
    throw SyntaxError(node.line,
                      str("an expression has more than ", kMaxExpressionDepth, " levels; split it with set"));
  }
}

template <class... Parts>
ExpressionPtr Parser::make(ExpressionKind kind, size_t line, std::string name, Parts... parts) {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  node->name = std::move(name);
  (node->parts.push_back(std::move(parts)), ...);
  check_depth(*node);
  return node;
}
template ExpressionPtr Parser::make(ExpressionKind, size_t, std::string);

bool Parser::ends_tuple() const {
  return now().kind == TokenKind::print_end || now().kind == TokenKind::block_end || at_symbol(")") ||
         at_name("recursive");
}

/// An expression, or a tuple if there is a comma.
ExpressionPtr Parser::parse_tuple(bool with_conditional, bool in_parentheses) {
  ExpressionPtr tuple = make(ExpressionKind::tuple, now().line, "");
  bool has_comma = false;
  while (!ends_tuple()) {
    tuple->parts.push_back(parse_expression(with_conditional));
    if (!skip_symbol(",")) break;
    has_comma = true;
  }
  if (!has_comma && !tuple->parts.empty()) return std::move(tuple->parts[0]);
  if (tuple->parts.empty() && !in_parentheses) fail(str("expected an expression, got ", describe(now())));
  check_depth(*tuple);
  return tuple;
}

ExpressionPtr Parser::parse_expression(bool with_conditional) {
  return with_conditional ? parse_conditional() : parse_or();
}

ExpressionPtr Parser::parse_conditional() {
  const Nested nested(*this);
  ExpressionPtr value = parse_or();
  while (at_name("if")) {
    const size_t line = now().line;
    advance();
    ExpressionPtr condition = parse_or();
    ExpressionPtr otherwise = skip_name("else") ? parse_conditional() : nullptr;
    value = make(ExpressionKind::conditional, line, "", std::move(value), std::move(condition), std::move(otherwise));
  }
  return value;
}

ExpressionPtr Parser::parse_or() {
  ExpressionPtr left = parse_and();
  while (at_name("or")) {
    const size_t line = now().line;
    advance();
    left = make(ExpressionKind::logical_or, line, "or", std::move(left), parse_and());
  }
  return left;
}

ExpressionPtr Parser::parse_and() {
  ExpressionPtr left = parse_not();
  while (at_name("and")) {
    const size_t line = now().line;
    advance();
    left = make(ExpressionKind::logical_and, line, "and", std::move(left), parse_not());
  }
  return left;
}

ExpressionPtr Parser::parse_not() {
  const size_t line = now().line;
  if (!skip_name("not")) return parse_comparison();
  const Nested nested(*this);
  return make(ExpressionKind::unary, line, "not", parse_not());
}

ExpressionPtr Parser::parse_comparison() {
  static constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
  ExpressionPtr first = parse_sum();
  ExpressionPtr chain;
  for (;;) {
    std::string symbol;
    if (now().kind == TokenKind::symbol && std::ranges::find(kOperators, now().text) != std::end(kOperators)) {
      symbol = now().text;
    } else if (at_name("in")) {
      symbol = "in";
    } else if (at_name("not") && next().kind == TokenKind::name && next().text == "in") {
      symbol = "not in";
      advance();
    } else {
      break;
    }
    const size_t line = now().line;
    advance();
    if (chain == nullptr) chain = make(ExpressionKind::comparison, line, "", std::move(first));
    chain->operators.push_back(symbol);
    chain->parts.push_back(parse_sum());
  }
  if (chain == nullptr) return first;
  check_depth(*chain);
  return chain;
}

ExpressionPtr Parser::parse_sum() {
  ExpressionPtr left = parse_concat();
  while (at_symbol("+") || at_symbol("-")) {
    const Token& symbol = now();
    advance();
    left = make(ExpressionKind::binary, symbol.line, symbol.text, std::move(left), parse_concat());
  }
  return left;
}

ExpressionPtr Parser::parse_concat() {
  ExpressionPtr first = parse_product();
  if (!at_symbol("~")) return first;
  ExpressionPtr node = make(ExpressionKind::concat, now().line, "", std::move(first));
  while (skip_symbol("~")) node->parts.push_back(parse_product());
  check_depth(*node);
  return node;
}

ExpressionPtr Parser::parse_product() {
  ExpressionPtr left = parse_power();
  while (at_symbol("*") || at_symbol("/") || at_symbol("//") || at_symbol("%")) {
    const Token& symbol = now();
    advance();
    left = make(ExpressionKind::binary, symbol.line, symbol.text, std::move(left), parse_power());
  }
  return left;
}

ExpressionPtr Parser::parse_power() {
  ExpressionPtr left = parse_unary(true);
  while (at_symbol("**")) {
    const size_t line = now().line;
    advance();
    left = make(ExpressionKind::binary, line, "**", std::move(left), parse_unary(true));
  }
  return left;
}

ExpressionPtr Parser::parse_unary(bool with_filter) {
  ExpressionPtr node;
  if (at_symbol("-") || at_symbol("+")) {
    const Nested nested(*this);
    const Token& symbol = now();
    advance();
    node = make(ExpressionKind::unary, symbol.line, symbol.text, parse_unary(false));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr Parser::parse_primary() {
  const Token& token = now();
  if (token.kind == TokenKind::name) return parse_name();
  if (token.kind == TokenKind::number || token.kind == TokenKind::string) {
    ExpressionPtr node = make(ExpressionKind::constant, token.line, "");
    std::string text;
    if (token.kind == TokenKind::number) advance();
    for (; now().kind == TokenKind::string; advance()) {
      if (token.kind == TokenKind::number) break;
      text += now().text;
    }
    node->value = token.kind == TokenKind::number ? token.number : Value(std::move(text));
    return node;
  }
  if (skip_symbol("(")) {
    ExpressionPtr node = parse_tuple(true, true);
    expect_symbol(")");
    return node;
  }
  if (at_symbol("[")) return parse_list();
  if (at_symbol("{")) return parse_dict();
  fail(str("expected an expression, got ", describe(token)));
}

ExpressionPtr Parser::parse_name() {
  const Token& token = now();
  advance();
  const std::string& name = token.text;
  ExpressionPtr node = make(ExpressionKind::constant, token.line, "");
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    node->value = name == "true" || name == "True";
  } else if (name != "none" && name != "None") {
    node->kind = ExpressionKind::name;
    node->name = name;
    for (Macro* macro : macros_) {
      macro->uses_caller |= name == "caller";
      macro->uses_varargs |= name == "varargs";
      macro->uses_kwargs |= name == "kwargs";
    }
  }
  return node;
}

ExpressionPtr Parser::parse_list() {
  ExpressionPtr node = make(ExpressionKind::list, now().line, "");
  expect_symbol("[");
  while (!at_symbol("]")) {
    if (!node->parts.empty()) expect_symbol(",");
    if (at_symbol("]")) break;
    node->parts.push_back(parse_expression());
  }
  expect_symbol("]");
  check_depth(*node);
  return node;
}

ExpressionPtr Parser::parse_dict() {
  ExpressionPtr node = make(ExpressionKind::dict, now().line, "");
  expect_symbol("{");
  while (!at_symbol("}")) {
    if (!node->parts.empty()) expect_symbol(",");
    if (at_symbol("}")) break;
    node->parts.push_back(parse_expression());
    expect_symbol(":");
    node->parts.push_back(parse_expression());
  }
  expect_symbol("}");
  check_depth(*node);
  return node;
}

}  // namespace lamina::text::jinja
