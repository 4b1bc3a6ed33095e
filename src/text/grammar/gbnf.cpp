#include "lamina/text/grammar/gbnf.h"

#include <algorithm>
#include <map>
#include <vector>

#include "lamina/base/error.h"
#include "lamina/base/json.h"
#include "lamina/text/utf8.h"

namespace lamina::text::grammar {
namespace {

class GbnfParser {
 public:
  GbnfParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Program compile() {
    if (text_.size() > kMaxGbnfBytes) fail(str("the grammar has ", text_.size(), " bytes; at most ", kMaxGbnfBytes));
    skip_space(true);
    while (!done()) rule();
    std::vector<std::string> defined;
    for (const auto& [rule_name, use] : ids_) {
      if (rules_.rules()[use.id].defined) defined.push_back(rule_name);
    }
    for (const auto& [rule_name, use] : ids_) {
      if (rules_.rules()[use.id].defined) continue;
      at_ = use.first_use;
      const std::string near = nearest_of(rule_name, defined);
      fail(str("the rule ", rule_name, " is not defined", near.empty() ? "" : str("; did you mean ", near, "?")));
    }
    const auto root = ids_.find("root");
    if (root == ids_.end()) fail("there is no rule root; the grammar starts with it: root ::= …");
    return grammar::compile(rules_, root->second.id, name_);
  }

 private:
  struct Use {
    RuleId id = 0;
    size_t first_use = 0;
  };

  [[noreturn]] void fail(const std::string& message) const {
    throw Error(str(name_, ": ", text_position(text_, at_), ": ", message));
  }
  bool done() const { return at_ >= text_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool take(char expected) {
    if (done() || text_[at_] != expected) return false;
    ++at_;
    return true;
  }

  /// Skips blanks and comments; with `lines` also line breaks.
  void skip_space(bool lines) {
    while (!done()) {
      const char c = peek();
      if (c == '#') {
        while (!done() && peek() != '\n' && peek() != '\r') ++at_;
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }

  RuleId rule_name() {
    const size_t begin = at_;
    while (is_name(peek())) ++at_;
    if (at_ == begin)
      fail(str("expected a rule's name, found ", done() ? "the end" : name_of_first(text_.substr(at_))));
    const std::string found(text_.substr(begin, at_ - begin));
    const auto known = ids_.find(found);
    if (known != ids_.end()) return known->second.id;
    const RuleId id = rules_.add_rule(found);
    ids_.emplace(found, Use{id, begin});
    return id;
  }

  void rule() {
    const size_t begin = at_;
    const RuleId id = rule_name();
    if (rules_.rules()[id].defined) {
      at_ = begin;
      fail(str("the rule ", rules_.rules()[id].name, " is defined twice"));
    }
    skip_space(false);
    if (!text_.substr(at_).starts_with("::=")) fail("expected ::= after the rule's name");
    at_ += 3;
    skip_space(true);
    rules_.define(id, alternatives(0));
    if (!done() && peek() != '\n' && peek() != '\r')
      fail(str("unexpected ", name_of_first(text_.substr(at_)), " in a rule"));
    skip_space(true);
  }

  /// Whether another rule begins here, with a name and "::=".
  bool at_rule_start() const {
    size_t at = at_;
    while (at < text_.size() && is_name(text_[at])) ++at;
    if (at == at_) return false;
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
    return text_.substr(at).starts_with("::=");
  }

  /// Skips space between two elements of a rule. Skips a line break only if the rule continues after it.
  void skip_inside(int depth) {
    skip_space(depth > 0);
    if (depth > 0 || (peek() != '\n' && peek() != '\r')) return;
    const size_t before = at_;
    skip_space(true);
    if (peek() != '|') at_ = before;
  }

  ExprId alternatives(int depth) {
    if (depth > kMaxNesting) fail(str("groups are nested more than ", kMaxNesting, " deep"));
    std::vector<ExprId> parts = {sequence(depth)};
    while (take('|')) {
      skip_space(true);
      parts.push_back(sequence(depth));
    }
    return rules_.choice(std::move(parts));
  }

  ExprId sequence(int depth) {
    std::vector<ExprId> parts;
    skip_inside(depth);
    while (!done() && peek() != '|' && peek() != ')' && peek() != '\n' && peek() != '\r') {
      if (depth > 0 && at_rule_start()) fail("a group is not closed before the next rule; expected ')'");
      ExprId part = element(depth);
      skip_inside(depth);
      while (repeated(part)) skip_inside(depth);
      parts.push_back(part);
    }
    return rules_.sequence(std::move(parts));
  }

  ExprId element(int depth) {
    if (peek() == '"') return literal();
    if (peek() == '[') return character_class();
    if (take('.')) return rules_.chars(CodeSet::all());
    if (take('(')) {
      skip_space(true);
      const ExprId group = alternatives(depth + 1);
      if (!take(')')) fail("a group is not closed; expected ')'");
      return group;
    }
    if (peek() == '<' || peek() == '!')
      fail("tokens, as in <think> or <[1000]>, are not supported; write a literal in quotes");
    return rules_.rule(rule_name());
  }

  bool repeated(ExprId& part) {
    if (take('*')) {
      part = rules_.repeat(part, 0, kUnbounded);
    } else if (take('+')) {
      part = rules_.repeat(part, 1, kUnbounded);
    } else if (take('?')) {
      part = rules_.repeat(part, 0, 1);
    } else if (take('{')) {
      skip_space(false);
      const uint32_t min = peek() == ',' ? 0 : count();
      uint32_t max = min;
      skip_space(false);
      if (take(',')) {
        skip_space(false);
        max = peek() == '}' ? kUnbounded : count();
      }
      skip_space(false);
      if (!take('}')) fail("expected '}' after the repetition's counts");
      if (max < min) fail(str("the repetition {", min, ",", max, "} has a maximum below its minimum"));
      part = rules_.repeat(part, min, max);
    } else {
      return false;
    }
    return true;
  }

  uint32_t count() {
    if (peek() < '0' || peek() > '9') fail("expected a number in the repetition");
    uint64_t value = 0;
    while (peek() >= '0' && peek() <= '9')
      value = std::min<uint64_t>(value * 10 + (text_[at_++] - '0'), kUnbounded - 1);
    return static_cast<uint32_t>(value);
  }

  ExprId literal() {
    ++at_;
    std::string bytes;
    while (!take('"')) {
      if (done() || peek() == '\n') fail("a literal is not closed; expected '\"'");
      append_utf8(bytes, character());
    }
    return rules_.literal(bytes);
  }

  ExprId character_class() {
    ++at_;
    CodeSet set;
    const bool negated = take('^');
    while (!take(']')) {
      if (done()) fail("a class is not closed; expected ']'");
      const char32_t first = character();
      char32_t last = first;
      if (peek() == '-' && peek(1) != ']') {
        ++at_;
        if (done()) fail("a class is not closed; expected ']'");
        last = character();
        if (last < first) fail("a range in a class ends before it begins");
      }
      set.add(first, last);
    }
    return rules_.chars(negated ? set.complement() : set);
  }

  char32_t character() {
    if (!take('\\')) {
      const CodePoint point = first_code_point(text_.substr(at_, 4));
      if (point.length == 0) fail("the grammar is not valid UTF-8");
      at_ += point.length;
      return point.value;
    }
    const char c = peek();
    ++at_;
    switch (c) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^': return static_cast<char32_t>(c);
      case 'x': return hex(2);
      case 'u': return hex(4);
      case 'U': return hex(8);
      default: --at_; fail(str("the escape \\", done() ? "" : name_of_first(text_.substr(at_)), " is not supported"));
    }
  }

  char32_t hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = peek();
      const bool digit = c >= '0' && c <= '9';
      const char letter = static_cast<char>(c | 0x20);
      if (!digit && (letter < 'a' || letter > 'f')) fail(str("expected ", digits, " hexadecimal digits"));
      value = value * 16 + static_cast<char32_t>(digit ? c - '0' : letter - 'a' + 10);
      ++at_;
    }
    if (value > kLastCodePoint || (value >= 0xD800 && value <= 0xDFFF)) fail("the escape is not a Unicode character");
    return value;
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
  Rules rules_;
  std::map<std::string, Use, std::less<>> ids_;
};

}  // namespace

Program compile_gbnf(std::string_view text, const std::string& name) { return GbnfParser(text, name).compile(); }

}  // namespace lamina::text::grammar
