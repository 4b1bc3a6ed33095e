#include "lamina/text/template/parser.h"

#include <algorithm>

#include "lamina/base/error.h"

namespace lamina::text::jinja {

void Parser::advance() {
  if (at_ + 1 < tokens_.size()) ++at_;
}

bool Parser::skip_symbol(std::string_view symbol) {
  if (!at_symbol(symbol)) return false;
  advance();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  advance();
  return true;
}

std::string Parser::describe(const Token& token) const {
  switch (token.kind) {
    case TokenKind::end: return "the end of the template";
    case TokenKind::block_end: return "the end of the tag (%})";
    case TokenKind::print_end: return "the end of the expression (}})";
    case TokenKind::data: return "text";
    case TokenKind::string: return "a string";
    default: return "'" + token.text.substr(0, 40) + "'";
  }
}

void Parser::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) fail(str("expected '", symbol, "', got ", describe(now())));
}
void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail(str("expected '", name, "', got ", describe(now())));
}
void Parser::expect(TokenKind kind) {
  if (now().kind != kind) {
    fail(str("expected ", kind == TokenKind::block_end ? "the end of the tag (%})" : "the end of the expression (}})",
             ", got ", describe(now())));
  }
  advance();
}
std::string Parser::expect_identifier() {
  if (now().kind != TokenKind::name) fail(str("expected a name, got ", describe(now())));
  std::string name = now().text;
  advance();
  return name;
}

Block Parser::parse() {
  Block block = parse_until({});
  if (now().kind != TokenKind::end) fail(str("unexpected tag ", describe(now()), ": no block that it ends is open"));
  return block;
}

/// Parses statements up to a tag named in `ends`, or to the end of the template. The tag's name is then the next token.
Block Parser::parse_until(std::initializer_list<std::string_view> ends) {
  const Nested nested(*this);
  Block block;
  for (;;) {
    const size_t line = now().line;
    if (now().kind == TokenKind::data) {
      block.push_back({line, Data{now().text}});
      advance();
    } else if (now().kind == TokenKind::print_begin) {
      advance();
      block.push_back({line, Print{parse_tuple(true)}});
      expect(TokenKind::print_end);
    } else if (now().kind == TokenKind::block_begin) {
      advance();
      if (now().kind == TokenKind::name && std::ranges::find(ends, now().text) != ends.end()) return block;
      block.push_back(parse_statement());
      expect(TokenKind::block_end);
    } else {
      return block;
    }
  }
}

/// Parses the rest of a tag and its body, up to one of `ends`.
Block Parser::parse_body(std::initializer_list<std::string_view> ends) {
  const size_t line = now().line;
  skip_symbol(":");
  expect(TokenKind::block_end);
  Block block = parse_until(ends);
  if (now().kind == TokenKind::end) {
    throw SyntaxError(line, str("the block that begins here has no end; expected {% ", *(ends.end() - 1), " %}"));
  }
  return block;
}

Block Parser::parse_rest(std::string_view end) {
  Block block = parse_body({end});
  advance();
  return block;
}

Statement Parser::parse_statement() {
  if (now().kind != TokenKind::name) fail(str("expected the name of a tag, got ", describe(now())));
  const std::string tag = now().text;
  Statement statement{now().line, Break{}};
  advance();
  if (tag == "if") {
    statement.node = parse_if();
  } else if (tag == "for") {
    statement.node = parse_for();
  } else if (tag == "set") {
    std::visit([&](auto&& node) { statement.node = std::move(node); }, parse_set());
  } else if (tag == "macro") {
    statement.node = parse_macro();
  } else if (tag == "call") {
    statement.node = parse_call_block();
  } else if (tag == "filter") {
    statement.node = parse_filter_block();
  } else if (tag == "with") {
    statement.node = parse_with();
  } else if (tag == "print") {
    statement.node = Print{parse_expression()};
  } else if (tag == "generation") {
    const size_t loops = std::exchange(loops_, 0);
    statement.node = Generation{parse_rest("endgeneration")};
    loops_ = loops;
  } else if (tag == "break" || tag == "continue") {
    if (loops_ == 0) fail(str("'", tag, "' is not inside a loop"));
    if (tag == "continue") statement.node = Continue{};
  } else {
    throw SyntaxError(statement.line, str("the tag '", tag,
                                          "' is not supported here; expected if, for, set, macro, call, filter, with, "
                                          "generation, break, continue, raw or the end of an open block"));
  }
  return statement;
}

If Parser::parse_if() {
  If node;
  for (;;) {
    ExpressionPtr condition = parse_tuple(false);
    Block body = parse_body({"elif", "else", "endif"});
    node.branches.emplace_back(std::move(condition), std::move(body));
    if (!skip_name("elif")) break;
  }
  if (skip_name("else")) node.otherwise = parse_body({"endif"});
  expect_name("endif");
  return node;
}

For Parser::parse_for() {
  For node;
  node.target = parse_target(false, true);
  expect_name("in");
  node.items = parse_tuple(false);
  if (skip_name("if")) node.condition = parse_expression();
  node.recursive = skip_name("recursive");
  ++loops_;
  node.body = parse_body({"else", "endfor"});
  --loops_;
  if (skip_name("else")) node.otherwise = parse_body({"endfor"});
  expect_name("endfor");
  return node;
}

std::variant<Set, SetBlock> Parser::parse_set() {
  Target target = parse_target(true, true);
  if (skip_symbol("=")) return Set{std::move(target), parse_tuple(true)};
  SetBlock node{std::move(target), nullptr, {}};
  if (at_symbol("|")) {
    node.filter = make(ExpressionKind::block_text, now().line, "");
    while (skip_symbol("|")) node.filter = parse_filter(std::move(node.filter));
  }
  node.body = parse_rest("endset");
  return node;
}

FilterBlock Parser::parse_filter_block() {
  FilterBlock node{parse_filter(make(ExpressionKind::block_text, now().line, "")), {}};
  while (skip_symbol("|")) node.filter = parse_filter(std::move(node.filter));
  node.body = parse_rest("endfilter");
  return node;
}

With Parser::parse_with() {
  With node;
  while (now().kind != TokenKind::block_end) {
    if (!node.variables.empty()) expect_symbol(",");
    Target target = parse_target(false, true);
    expect_symbol("=");
    node.variables.emplace_back(std::move(target), parse_expression());
  }
  node.body = parse_rest("endwith");
  return node;
}

void Parser::parse_parameters(Macro& macro) {
  expect_symbol("(");
  while (!at_symbol(")")) {
    if (!macro.parameters.empty()) expect_symbol(",");
    std::string name = expect_identifier();
    ExpressionPtr fallback;
    if (skip_symbol("=")) {
      fallback = parse_expression();
    } else if (!macro.parameters.empty() && macro.parameters.back().second != nullptr) {
      fail(str("the parameter ", name, " has no default, but the one before it has"));
    }
    macro.parameters.emplace_back(std::move(name), std::move(fallback));
  }
  expect_symbol(")");
}

void Parser::parse_macro_body(Macro& macro, std::string_view end) {
  macros_.push_back(&macro);
  const size_t loops = std::exchange(loops_, 0);
  macro.body = parse_rest(end);
  loops_ = loops;
  macros_.pop_back();
}

Macro Parser::parse_macro() {
  Macro macro;
  macro.name = expect_identifier();
  parse_parameters(macro);
  parse_macro_body(macro, "endmacro");
  return macro;
}

CallBlock Parser::parse_call_block() {
  CallBlock node;
  node.caller.name = "caller";
  if (at_symbol("(")) parse_parameters(node.caller);
  node.call = parse_expression();
  if (node.call->kind != ExpressionKind::call) fail("expected a call after {% call");
  parse_macro_body(node.caller, "endcall");
  return node;
}

Target Parser::parse_one_target(bool allows_member) {
  const Nested nested(*this);
  if (skip_symbol("(")) {
    Target target = parse_target(allows_member, true);
    expect_symbol(")");
    return target;
  }
  static constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
  Target target;
  target.name = expect_identifier();
  if (std::ranges::find(kReserved, target.name) != std::end(kReserved)) fail(str("cannot assign to ", target.name));
  if (allows_member && skip_symbol(".")) target.member = expect_identifier();
  return target;
}

Target Parser::parse_target(bool allows_member, bool allows_tuple) {
  Target target = parse_one_target(allows_member);
  if (!allows_tuple || !at_symbol(",")) return target;
  Target tuple;
  tuple.is_tuple = true;
  tuple.parts.push_back(std::move(target));
  while (skip_symbol(",")) {
    if (now().kind != TokenKind::name && !at_symbol("(")) break;
    if (at_name("in")) break;
    tuple.parts.push_back(parse_one_target(allows_member));
  }
  return tuple;
}

}  // namespace lamina::text::jinja
