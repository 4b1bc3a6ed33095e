#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lamina/text/template/value.h"

namespace lamina::text::jinja {

/// A template that cannot be parsed. Template::parse adds the name.
class SyntaxError : public std::runtime_error {
 public:
  SyntaxError(size_t line, const std::string& message) : std::runtime_error(message), line_(line) {}
  size_t line() const { return line_; }

 private:
  size_t line_;
};

enum class TokenKind { data, block_begin, block_end, print_begin, print_end, name, string, number, symbol, end };

struct Token {
  TokenKind kind = TokenKind::end;
  size_t line = 1;
  std::string text;  ///< data, names, contents of strings, symbols
  Value number;
};

/// Splits a template as jinja2 does with trim_blocks and lstrip_blocks. Comments and raw blocks are resolved here.
std::vector<Token> tokenize(std::string_view source);

}  // namespace lamina::text::jinja
