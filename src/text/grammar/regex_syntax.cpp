#include "lamina/text/grammar/regex_syntax.h"

#include <algorithm>
#include <utility>

#include "lamina/base/error.h"
#include "lamina/text/utf8.h"

namespace lamina::text::grammar {
namespace {

class RegexParser {
 public:
  RegexParser(std::string_view pattern, const std::string& name) : text_(pattern), name_(name) {}

  RegexNode parse() {
    if (text_.size() > kMaxRegexBytes) {
      fail(str("the expression has ", text_.size(), " bytes; at most ", kMaxRegexBytes, " are allowed"));
    }
    if (const size_t valid = valid_prefix(text_); valid != text_.size()) {
      at_ = valid;
      fail("the expression is not valid UTF-8");
    }
    RegexNode node = choice(0);
    if (!done()) fail("unmatched ')'; escape it as \\) or add the opening parenthesis");
    return node;
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw Error(str(name_, ": regular expression, byte ", at_ + 1, ": ", message));
  }
  bool done() const { return at_ >= text_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool take(std::string_view expected) {
    if (!text_.substr(at_).starts_with(expected)) return false;
    at_ += expected.size();
    return true;
  }
  char32_t take_code_point() {
    const CodePoint point = first_code_point(text_.substr(at_, 4));
    at_ += point.length;
    return point.value;
  }

  RegexNode choice(int depth) {
    if (depth > kMaxNesting) fail(str("groups are nested more than ", kMaxNesting, " deep"));
    RegexNode node{RegexNode::Kind::choice};
    node.children.push_back(sequence(depth));
    while (take("|")) node.children.push_back(sequence(depth));
    return node.children.size() == 1 ? std::move(node.children[0]) : std::move(node);
  }

  RegexNode sequence(int depth) {
    RegexNode node{RegexNode::Kind::sequence};
    while (!done() && peek() != '|' && peek() != ')') {
      RegexNode item = atom(depth);
      quantify(item);
      node.children.push_back(std::move(item));
    }
    return node.children.size() == 1 ? std::move(node.children[0]) : std::move(node);
  }

  RegexNode atom(int depth) {
    if (take("(")) return group(depth);
    if (take("[")) return set_node(character_class());
    if (take("^")) return {RegexNode::Kind::begin};
    if (take("$")) return {RegexNode::Kind::end};
    if (take(".")) {
      CodeSet set;
      for (const char32_t line_end : {U'\n', U'\r', U'\u2028', U'\u2029'}) set.add(line_end);
      return set_node(set.complement());
    }
    if (take("\\")) return escape();
    const char c = peek();
    if (c == '*' || c == '+' || c == '?') fail(str("'", c, "' has nothing to repeat; escape it as \\", c));
    if (c == '{' && counted()) fail("'{' has nothing to repeat; escape it as \\{");
    const char32_t value = take_code_point();
    return set_node({value, value});
  }

  static RegexNode set_node(CodeSet set) {
    RegexNode node{RegexNode::Kind::set};
    node.set = std::move(set);
    return node;
  }

  RegexNode group(int depth) {
    if (take("?")) {
      if (take(":")) {
      } else if (peek() == '=' || peek() == '!' || text_.substr(at_).starts_with("<=") ||
                 text_.substr(at_).starts_with("<!")) {
        fail("look-ahead and look-behind are not supported; write the condition as alternatives");
      } else if (take("<") || take("P<")) {
        const size_t end = text_.find('>', at_);
        if (end == std::string_view::npos) fail("the group's name has no '>'");
        at_ = end + 1;
      } else {
        fail("this kind of group is not supported; expected (…), (?:…) or (?<name>…)");
      }
    }
    RegexNode node = choice(depth + 1);
    if (!take(")")) fail("a group is not closed; expected ')'");
    return node;
  }

  /// Whether a counted repetition ("{2}", "{2,}" or "{2,5}") comes next. Any other '{' is a literal.
  bool counted() const {
    size_t at = at_ + 1;
    const auto digits = [&] {
      const size_t begin = at;
      while (at < text_.size() && text_[at] >= '0' && text_[at] <= '9') ++at;
      return at > begin;
    };
    if (!digits()) return false;
    if (at < text_.size() && text_[at] == ',') {
      ++at;
      digits();
    }
    return at < text_.size() && text_[at] == '}';
  }

  uint32_t number() {
    uint64_t value = 0;
    while (peek() >= '0' && peek() <= '9')
      value = std::min<uint64_t>(value * 10 + (text_[at_++] - '0'), kUnbounded - 1);
    return static_cast<uint32_t>(value);
  }

  void quantify(RegexNode& item) {
    uint32_t min = 0;
    uint32_t max = kUnbounded;
    if (take("*")) {
    } else if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (peek() == '{' && counted()) {
      ++at_;
      min = max = number();
      if (take(",")) max = peek() == '}' ? kUnbounded : number();
      ++at_;
      if (max < min) fail(str("the repetition {", min, ",", max, "} has a maximum below its minimum"));
    } else {
      return;
    }
    if (take("+")) fail("possessive quantifiers are not supported; remove the '+'");
    take("?");  // lazy: matches the same texts
    const char c = peek();
    if (c == '*' || c == '+' || c == '?' || (c == '{' && counted())) {
      fail("a quantifier follows another; put the first repetition into a group (?:…)");
    }
    RegexNode node{RegexNode::Kind::repeat};
    node.min = min;
    node.max = max;
    node.children.push_back(std::move(item));
    item = std::move(node);
  }

  RegexNode escape() {
    if (done()) fail("the expression ends in a single '\\'; write \\\\ for a backslash");
    if (take("A")) return {RegexNode::Kind::begin};
    if (take("z")) return {RegexNode::Kind::end};
    const char c = peek();
    if (c == 'b' || c == 'B') fail("word boundaries \\b and \\B are not supported");
    if (c >= '1' && c <= '9') fail("back-references are not supported");
    if (c == 'k') fail("named back-references \\k are not supported");
    CodeSet set;
    if (class_escape(set)) return set_node(std::move(set));
    const char32_t value = character_escape();
    return set_node({value, value});
  }

  /// Reads \d \w \s \h \p{…} or their complements, after the backslash.
  bool class_escape(CodeSet& set) {
    const char c = peek();
    switch (c) {
      case 'd':
      case 'D': set.add('0', '9'); break;
      case 'w':
      case 'W':
        set.add('0', '9');
        set.add('A', 'Z');
        set.add('_');
        set.add('a', 'z');
        break;
      case 's':
      case 'S': set = white_space(); break;
      case 'h':
      case 'H': set.add('\t'), set.add(' '); break;
      case 'p':
      case 'P': set = category(); return true;
      default: return false;
    }
    ++at_;
    if (c >= 'A' && c <= 'Z') set = set.complement();
    return true;
  }

  CodeSet category() {
    const bool negated = text_[at_++] == 'P';
    if (!take("{")) fail("\\p needs a category in braces, such as \\p{L}");
    const size_t end = text_.find('}', at_);
    if (end == std::string_view::npos) fail("\\p{ has no '}'");
    std::string_view category = text_.substr(at_, end - at_);
    for (const std::string_view prefix : {"General_Category=", "gc="}) {
      if (category.starts_with(prefix)) category.remove_prefix(prefix.size());
    }
    static constexpr std::pair<std::string_view, std::string_view> kLong[] = {{"Letter", "L"},
                                                                              {"Uppercase_Letter", "Lu"},
                                                                              {"Lowercase_Letter", "Ll"},
                                                                              {"Number", "N"},
                                                                              {"Decimal_Number", "Nd"},
                                                                              {"digit", "Nd"},
                                                                              {"Punctuation", "P"},
                                                                              {"Symbol", "S"},
                                                                              {"Mark", "M"}};
    for (const auto& [longer, shorter] : kLong) {
      if (category == longer) category = shorter;
    }
    const auto set = unicode_category(category);
    if (!set) {
      fail(str("\\p{", category, "} is not supported; expected a general category such as L, Lu, Nd or P"));
    }
    at_ = end + 1;
    return negated ? set->complement() : *set;
  }

  char32_t hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) value = value * 16 + hex_digit();
    return value;
  }
  char32_t hex_digit() {
    const char c = peek();
    ++at_;
    if (c >= '0' && c <= '9') return static_cast<char32_t>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<char32_t>(c - 'a' + 10);
    if (c >= 'A' && c <= 'F') return static_cast<char32_t>(c - 'A' + 10);
    fail("expected a hexadecimal digit");
  }
  char32_t braced_hex() {
    char32_t value = 0;
    do {
      value = value * 16 + hex_digit();
      if (value > kLastCodePoint) fail("code points end at U+10FFFF");
    } while (peek() != '}' && !done());
    if (!take("}")) fail("expected '}' after the code point");
    return value;
  }

  /// Reads an escaped character, after the backslash.
  char32_t character_escape() {
    const char32_t c = take_code_point();
    switch (c) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'f': return '\f';
      case 'v': return '\v';
      case 'a': return '\a';
      case 'e': return 0x1B;
      case '0': return 0;
      case 'x': return take("{") ? braced_hex() : hex(2);
      case 'u': return unicode_escape();
      case 'c': {
        const char letter = peek();
        if (!((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))) fail("\\c needs a letter");
        ++at_;
        return static_cast<char32_t>(letter & 0x1F);
      }
      default: break;
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) {
      fail(str("the escape \\", static_cast<char>(c), " is not supported"));
    }
    return c;
  }

  char32_t unicode_escape() {
    if (take("{")) return braced_hex();
    const char32_t value = hex(4);
    if (value >= 0xD800 && value <= 0xDBFF && take("\\u")) {
      const char32_t low = hex(4);
      if (low >= 0xDC00 && low <= 0xDFFF) return 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
      fail("a high surrogate is not followed by a low one");
    }
    if (value >= 0xD800 && value <= 0xDFFF) fail("a lone surrogate is not a character");
    return value;
  }

  CodeSet character_class() {
    CodeSet set;
    const bool negated = take("^");
    if (take("]")) return negated ? CodeSet::all() : set;  // as in ECMA-262: [] matches nothing, [^] everything
    while (!take("]")) {
      if (done()) fail("a class is not closed; expected ']'");
      if (peek() == '[' && (peek(1) == ':' || peek(1) == '.' || peek(1) == '=')) {
        fail("POSIX classes such as [:alpha:] are not supported; use \\p{L}, \\d or a range");
      }
      if (take("\\")) {
        CodeSet escaped;
        if (class_escape(escaped)) {
          set.add(escaped);
          if (peek() == '-' && peek(1) != ']') fail("a range cannot begin with a class; put '-' last");
          continue;
        }
        --at_;
      }
      const char32_t first = class_member();
      char32_t last = first;
      if (peek() == '-' && peek(1) != ']' && at_ + 1 < text_.size()) {
        ++at_;
        last = class_member();
        if (last < first) fail("a range in a class ends before it begins");
      }
      set.add(first, last);
    }
    return negated ? set.complement() : set;
  }

  char32_t class_member() {
    if (!take("\\")) return take_code_point();
    if (done()) fail("a class is not closed; expected ']'");
    if (take("b")) return '\b';
    CodeSet ignored;
    if (class_escape(ignored)) fail("a range cannot end with a class; put '-' last");
    return character_escape();
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
};

}  // namespace

CodeSet white_space() {
  CodeSet set('\t', '\r');
  for (const char32_t space : {0x20, 0xA0, 0x1680, 0x202F, 0x205F, 0x3000}) set.add(space);
  set.add(0x2000, 0x200A);
  set.add(0x2028, 0x2029);
  set.add(0xFEFF);
  return set;
}

RegexNode parse_regex(std::string_view pattern, const std::string& name) { return RegexParser(pattern, name).parse(); }

}  // namespace lamina::text::grammar
