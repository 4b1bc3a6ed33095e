#include "lamina/text/template/lexer.h"

#include <algorithm>
#include <charconv>

#include "lamina/base/error.h"
#include "lamina/text/template/string_literal.h"
#include "lamina/text/template/unicode.h"
#include "lamina/text/utf8.h"

namespace lamina::text::jinja {
namespace {

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_name_part(char c) { return is_name_start(c) || is_ascii_digit(c); }

/// Replaces "\r
/// " and "\r" by "
/// ". Drops one newline at the end.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      out += '\n';
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_root();
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  /// Reads text up to the next tag, then the tag.
  void lex_root() {
    const size_t tag = find_tag(at_);
    if (tag == std::string_view::npos) {
      add_data(source_.substr(at_));
      advance(source_.size());
      return;
    }
    const char type = source_[tag + 1];
    std::string_view data = source_.substr(at_, tag - at_);
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const bool has_sign = sign == '-' || sign == '+';
    data = strip_before_tag(data, has_sign ? sign : '\0', type != '{');
    add_data(data);
    advance(tag + 2 + (has_sign ? 1 : 0));
    if (type == '#') {
      lex_comment();
    } else if (type == '{') {
      lex_expression(TokenKind::print_begin, TokenKind::print_end, '}');
    } else if (!lex_raw()) {
      lex_expression(TokenKind::block_begin, TokenKind::block_end, '%');
    }
  }

  size_t find_tag(size_t from) const {
    for (size_t at = from; (at = source_.find('{', at)) != std::string_view::npos; ++at) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '%' || next == '{' || next == '#') return at;
    }
    return std::string_view::npos;
  }

  /// Strips text before a tag. `-` strips all white space. Without a sign, lstrip_blocks strips the line before a block
  /// or comment if it is blank.
  std::string_view strip_before_tag(std::string_view data, char sign, bool strips_line) const {
    if (sign == '-') return strip(data, Side::right);
    if (sign == '+' || !strips_line) return data;
    const size_t newline = data.rfind('\n');
    if (newline == std::string_view::npos && !line_starting_) return data;
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    return strip(data.substr(line), Side::both).empty() ? data.substr(0, line) : data;
  }

  /// Strips text after a tag. `-` strips all white space; otherwise trim_blocks strips one newline.
  void finish_tag(size_t end, char sign, bool trims) {
    if (sign == '-') {
      const std::string_view rest = source_.substr(end);
      end += rest.size() - strip(rest, Side::left).size();
    } else if (sign != '+' && trims && end < source_.size() && source_[end] == '\n') {
      ++end;
    }
    advance(end);
    line_starting_ = end > 0 && source_[end - 1] == '\n';
  }

  void lex_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) fail("a comment has no end; expected #}");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    finish_tag(end + 2, sign, true);
  }

  size_t skip_space(size_t at) const {
    const std::string_view rest = source_.substr(at);
    return at + rest.size() - strip(rest, Side::left).size();
  }

  /// The position after `word` if it comes next within a tag; npos otherwise.
  size_t after_word(size_t at, std::string_view word) const {
    at = skip_space(at);
    return source_.substr(at, word.size()) == word ? skip_space(at + word.size()) : std::string_view::npos;
  }

  /// Reads {% raw %} … {% endraw %}, if the current tag is a raw tag.
  bool lex_raw() {
    size_t at = after_word(at_, "raw");
    if (at == std::string_view::npos) return false;
    const char begin_sign = source_.substr(at, 1) == "-" ? '-' : '\0';
    if (begin_sign != '\0') ++at;
    if (source_.substr(at, 2) != "%}") return false;
    finish_tag(at + 2, begin_sign, false);
    for (size_t tag = at_; (tag = source_.find("{%", tag)) != std::string_view::npos; tag += 2) {
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const bool has_sign = sign == '-' || sign == '+';
      size_t end = after_word(tag + 2 + (has_sign ? 1 : 0), "endraw");
      if (end == std::string_view::npos) continue;
      const char end_sign = end < source_.size() ? source_[end] : '\0';
      if (end_sign == '-' || end_sign == '+') ++end;
      if (source_.substr(end, 2) != "%}") continue;
      add_data(strip_before_tag(source_.substr(at_, tag - at_), has_sign ? sign : '\0', true));
      finish_tag(end + 2, end_sign, true);
      return true;
    }
    fail("a raw block has no end; expected {% endraw %}");
  }

  void lex_expression(TokenKind begin, TokenKind end, char closing) {
    add(begin, "");
    std::string open;  // open brackets; within them, }} and %} are symbols
    for (;;) {
      advance(skip_space(at_));
      if (at_ >= source_.size()) fail("a tag has no end; expected %} or }}");
      if (open.empty() && lex_tag_end(end, closing)) return;
      const char c = source_[at_];
      if (is_ascii_digit(c)) {
        lex_number();
      } else if (is_name_start(c)) {
        lex_name();
      } else if (c == '\'' || c == '"') {
        lex_string(c);
      } else {
        lex_symbol(open);
      }
    }
  }

  bool lex_tag_end(TokenKind kind, char closing) {
    const bool block = closing == '%';
    const char sign = source_[at_] == '-' || (block && source_[at_] == '+') ? source_[at_] : '\0';
    const size_t at = at_ + (sign != '\0' ? 1 : 0);
    if (source_.size() - at < 2 || source_[at] != closing || source_[at + 1] != '}') return false;
    add(kind, "");
    finish_tag(at + 2, sign, block);
    return true;
  }

  void lex_name() {
    size_t end = at_;
    while (end < source_.size() && is_name_part(source_[end])) ++end;
    add(TokenKind::name, std::string(source_.substr(at_, end - at_)));
    advance(end);
  }

  void lex_string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a string has no end");
    try {
      add(TokenKind::string, unescape_literal(source_.substr(at_ + 1, end - at_ - 1)));
    } catch (const Failure& failure) {
      fail(failure.what());
    }
    advance(end + 1);
  }

  /// End of digits with single underscores between them.
  size_t digits_end(size_t at) const {
    while (at < source_.size() && (is_ascii_digit(source_[at]) || (source_[at] == '_' && at + 1 < source_.size() &&
                                                                   is_ascii_digit(source_[at + 1])))) {
      ++at;
    }
    return at;
  }

  void lex_number() {
    const auto digit_at = [&](size_t at) { return at < source_.size() && is_ascii_digit(source_[at]); };
    size_t end = digits_end(at_);
    bool real = false;
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';  // x.0.1 is (x[0])[1]
    if (!after_dot && end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      end = digits_end(end + 1);
      real = true;
    }
    if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t sign = end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
      if (digit_at(end + 1 + sign)) {
        end = digits_end(end + 1 + sign);
        real = true;
      }
    }
    std::string digits(source_.substr(at_, end - at_));
    std::erase(digits, '_');
    if (digits.size() > 1 && digits[0] == '0' && !real && digits.find_first_not_of('0') != std::string::npos) {
      fail(str("the number ", digits, " begins with 0; remove the zeros"));
    }
    if (end == at_ + 1 && source_[at_] == '0' && end < source_.size() &&
        std::string_view("xXoObB").find(source_[end]) < 6) {
      fail("numbers to another base than ten are not supported");
    }
    add(TokenKind::number, digits);
    tokens_.back().number = real ? real_of(digits) : integer_of(digits);
    advance(end);
  }

  Value integer_of(const std::string& digits) const {
    int64_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (result.ec != std::errc()) fail(str("the number ", digits.substr(0, 40), " does not fit into 64 bits"));
    return value;
  }
  Value real_of(const std::string& digits) const {
    double value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (result.ec != std::errc()) fail(str("the number ", digits.substr(0, 40), " is out of range"));
    return value;
  }

  void lex_symbol(std::string& open) {
    static constexpr std::string_view kSymbols[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                    ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto* found = std::ranges::find_if(
        kSymbols, [&](std::string_view symbol) { return source_.substr(at_, symbol.size()) == symbol; });
    if (found == std::end(kSymbols)) fail(str("unexpected ", name_of_first(source_.substr(at_)), " in a tag"));
    const char c = (*found)[0];
    if (c == '(' || c == '[' || c == '{') {
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) fail(str("unexpected '", c, "': no such bracket is open here"));
      open.pop_back();
    }
    add(TokenKind::symbol, std::string(*found));
    advance(at_ + found->size());
  }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text), {}}); }
  void add_data(std::string_view data) {
    if (!data.empty()) add(TokenKind::data, std::string(data));
  }
  void advance(size_t to) {
    line_ += static_cast<size_t>(std::ranges::count(source_.substr(at_, to - at_), '\n'));
    at_ = to;
  }
  [[noreturn]] void fail(const std::string& message) const { throw SyntaxError(line_, message); }

  std::string_view source_;
  size_t at_ = 0;
  size_t line_ = 1;
  bool line_starting_ = true;  // whether the previous match ended a line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  const std::string normalized = normalize_newlines(source);
  return Lexer(normalized).run();
}

}  // namespace lamina::text::jinja
