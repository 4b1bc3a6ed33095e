// Postfix syntax: attributes, items, slices, calls, filters and tests.
#include "lamina/base/error.h"
#include "lamina/text/template/parser.h"

namespace lamina::text::jinja {

ExpressionPtr Parser::parse_postfix(ExpressionPtr node) {
  for (;;) {
    if (at_symbol(".") || at_symbol("[")) {
      node = parse_subscript(std::move(node));
    } else if (at_symbol("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::parse_filters_and_tests(ExpressionPtr node) {
  for (;;) {
    if (skip_symbol("|")) {
      node = parse_filter(std::move(node));
    } else if (at_name("is")) {
      node = parse_test(std::move(node));
    } else if (at_symbol("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr node) {
  auto result = std::make_unique<Expression>();
  result->line = now().line;
  result->kind = ExpressionKind::item;
  result->parts.push_back(std::move(node));
  if (skip_symbol(".")) {
    if (now().kind == TokenKind::name) {
      result->kind = ExpressionKind::attribute;
      result->name = expect_identifier();
    } else if (now().kind == TokenKind::number && now().number.is_integer()) {
      result->parts.push_back(parse_primary());
    } else {
      fail(str("expected a name or a number after '.', got ", describe(now())));
    }
    check_depth(*result);
    return result;
  }
  expect_symbol("[");
  const auto bound = [&]() -> ExpressionPtr { return at_symbol(":") || at_symbol("]") ? nullptr : parse_expression(); };
  result->parts.push_back(bound());
  if (at_symbol(":")) {
    result->kind = ExpressionKind::slice;
    advance();
    result->parts.push_back(bound());
    result->parts.push_back(skip_symbol(":") ? bound() : nullptr);
  } else if (result->parts[1] == nullptr) {
    fail("expected an index between [ and ]");
  }
  expect_symbol("]");
  check_depth(*result);
  return result;
}

ExpressionPtr Parser::parse_call(ExpressionPtr node) {
  auto call = std::make_unique<Expression>();
  call->kind = ExpressionKind::call;
  call->line = now().line;
  call->parts.push_back(std::move(node));
  call->arguments = parse_arguments();
  check_depth(*call);
  return call;
}

ArgumentSyntax Parser::parse_arguments() {
  ArgumentSyntax arguments;
  expect_symbol("(");
  const auto ensure = [&](bool holds) {
    if (!holds) fail("invalid order of arguments; expected values, then name=value, *list and **dict");
  };
  bool first = true;
  while (!at_symbol(")")) {
    if (!first) expect_symbol(",");
    first = false;
    if (at_symbol(")")) break;
    if (skip_symbol("*")) {
      ensure(arguments.star == nullptr && arguments.double_star == nullptr);
      arguments.star = parse_expression();
    } else if (skip_symbol("**")) {
      ensure(arguments.double_star == nullptr);
      arguments.double_star = parse_expression();
    } else if (now().kind == TokenKind::name && next().kind == TokenKind::symbol && next().text == "=") {
      ensure(arguments.double_star == nullptr);
      std::string name = expect_identifier();
      advance();
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(arguments.star == nullptr && arguments.double_star == nullptr && arguments.named.empty());
      arguments.positional.push_back(parse_expression());
    }
  }
  expect_symbol(")");
  return arguments;
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_identifier();
  while (skip_symbol(".")) name.append(".").append(expect_identifier());
  return name;
}

ExpressionPtr Parser::parse_filter(ExpressionPtr input) {
  auto filter = std::make_unique<Expression>();
  filter->kind = ExpressionKind::filter;
  filter->line = now().line;
  filter->name = parse_dotted_name();
  filter->parts.push_back(std::move(input));
  if (at_symbol("(")) filter->arguments = parse_arguments();
  check_depth(*filter);
  return filter;
}

ExpressionPtr Parser::parse_test(ExpressionPtr input) {
  auto test = std::make_unique<Expression>();
  test->kind = ExpressionKind::test;
  test->line = now().line;
  expect_name("is");
  const bool negated = skip_name("not");
  test->name = parse_dotted_name();
  test->parts.push_back(std::move(input));
  const bool value_follows = now().kind == TokenKind::name || now().kind == TokenKind::string ||
                             now().kind == TokenKind::number || at_symbol("[") || at_symbol("{");
  if (at_symbol("(")) {
    test->arguments = parse_arguments();
  } else if (value_follows && !at_name("else") && !at_name("or") && !at_name("and")) {
    if (at_name("is")) fail("tests cannot be chained; join them with `and`");
    test->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  check_depth(*test);
  if (!negated) return test;
  auto inverse = std::make_unique<Expression>();
  inverse->kind = ExpressionKind::unary;
  inverse->name = "not";
  inverse->line = test->line;
  inverse->parts.push_back(std::move(test));
  check_depth(*inverse);
  return inverse;
}

}  // namespace lamina::text::jinja
