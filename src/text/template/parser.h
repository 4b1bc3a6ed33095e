#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/template/lexer.h"
#include "lamina/text/template/syntax.h"

namespace lamina::text::jinja {

inline constexpr size_t kMaxSyntaxDepth = 200;      ///< maximum nesting of blocks and brackets
inline constexpr size_t kMaxExpressionDepth = 400;  ///< maximum height of an expression, also of a + b + c + …

/// Recursive-descent parser with jinja2's grammar and precedence. Throws SyntaxError.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Block parse();

 private:
  class Nested;

  // Statements (parser.cpp).
  Block parse_until(std::initializer_list<std::string_view> ends);
  Block parse_body(std::initializer_list<std::string_view> ends);
  Block parse_rest(std::string_view end);
  Statement parse_statement();
  If parse_if();
  For parse_for();
  std::variant<Set, SetBlock> parse_set();
  Macro parse_macro();
  CallBlock parse_call_block();
  With parse_with();
  FilterBlock parse_filter_block();
  void parse_parameters(Macro& macro);
  void parse_macro_body(Macro& macro, std::string_view end);
  Target parse_target(bool allows_member, bool allows_tuple);
  Target parse_one_target(bool allows_member);

  // Expressions, from the lowest precedence to the highest (parse_expression.cpp).
  ExpressionPtr parse_tuple(bool with_conditional, bool in_parentheses = false);
  ExpressionPtr parse_expression(bool with_conditional = true);
  ExpressionPtr parse_conditional();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filter);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr node);
  ExpressionPtr parse_filter(ExpressionPtr input);
  ExpressionPtr parse_test(ExpressionPtr input);
  ExpressionPtr parse_subscript(ExpressionPtr node);
  ExpressionPtr parse_call(ExpressionPtr node);
  ArgumentSyntax parse_arguments();
  std::string parse_dotted_name();
  bool ends_tuple() const;

  /// Creates a node and checks its depth.
  template <class... Parts>
  ExpressionPtr make(ExpressionKind kind, size_t line, std::string name, Parts... parts);
  void check_depth(Expression& node) const;

  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool at_symbol(std::string_view symbol) const { return now().kind == TokenKind::symbol && now().text == symbol; }
  bool at_name(std::string_view name) const { return now().kind == TokenKind::name && now().text == name; }
  bool skip_symbol(std::string_view symbol);
  bool skip_name(std::string_view name);
  void expect_symbol(std::string_view symbol);
  void expect_name(std::string_view name);
  void expect(TokenKind kind);
  std::string expect_identifier();
  void advance();
  [[noreturn]] void fail(const std::string& message) const { throw SyntaxError(now().line, message); }
  std::string describe(const Token& token) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  size_t depth_ = 0;
  size_t loops_ = 0;            ///< number of loops around the current statement, within the current macro
  std::vector<Macro*> macros_;  ///< macros around the current statement
};

/// Counts the nesting depth during its lifetime.
class Parser::Nested {
 public:
  explicit Nested(Parser& parser) : parser_(parser) {
    if (++parser_.depth_ > kMaxSyntaxDepth) {
      --parser_.depth_;
      parser_.fail("blocks or brackets are nested more than " + std::to_string(kMaxSyntaxDepth) + " levels deep");
    }
  }
  ~Nested() { --parser_.depth_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Parser& parser_;
};

}  // namespace lamina::text::jinja
