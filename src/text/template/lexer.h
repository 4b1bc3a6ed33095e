#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/template/value.h"

namespace lamina::text::jinja {

/// Thrown for a template that cannot be parsed. Template::parse adds the name.
class SyntaxError : public std::runtime_error {
 public:
  SyntaxError(size_t line, const std::string& message) : std::runtime_error(message), line_(line) {}
  size_t line() const { return line_; }

 private:
  size_t line_;
};

enum class TokenKind { data, block_begin, block_end, print_begin, print_end, name, string, number, symbol, end };

/// A token of a template.
struct Token {
  TokenKind kind = TokenKind::end;
  size_t line = 1;
  std::string text;  ///< data, name, content of a string, or symbol
  Value number;
};

/// Splits a template into tokens, as jinja2 does with trim_blocks and lstrip_blocks. Resolves comments and raw blocks.
std::vector<Token> tokenize(std::string_view source);

}  // namespace lamina::text::jinja
