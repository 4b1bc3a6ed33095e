#include "lamina/text/json_lists.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "lamina/base/error.h"
#include "lamina/base/json.h"
#include "lamina/text/utf8.h"

namespace lamina::text {
namespace {

class Reader {
 public:
  Reader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  size_t place() const { return at_; }
  char peek() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(str("expected '", c, "'"));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(str(name_, ": ", text_position(text_, at_), ": ", what, "; is this a tokenizer.json?"));
  }

  std::string string() {
    expect('"');
    std::string result;
    for (;;) {
      const size_t end = text_.find_first_of("\"\\", at_);
      if (end == std::string_view::npos) fail("a string has no end");
      result += text_.substr(at_, end - at_);
      at_ = end + 1;
      if (text_[end] == '"') return result;
      escape(result);
    }
  }

  int64_t integer() {
    peek();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("expected a whole number");
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  double number() {
    peek();
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || !std::isfinite(value)) fail("expected a number");
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  /// Skips any value. Brackets are only counted here; the parser of the remaining document checks them.
  void skip() {
    size_t depth = 0;
    do {
      const char c = peek();
      if (c == '\0') fail("the document ends within a value");
      if (c == '"') {
        skip_string();
        continue;
      }
      ++at_;
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && depth-- == 0) fail("a bracket too many");
      if (depth == 0 && c != '}' && c != ']') at_ = std::min(text_.find_first_of(",}] \n\r\t", at_), text_.size());
    } while (depth > 0);
  }

  /// Calls body(key) for each member of an object. `body` must consume the value.
  template <class Body>
  void object(const Body& body) {
    expect('{');
    if (take('}')) return;
    do {
      const std::string key = string();
      expect(':');
      body(key);
    } while (take(','));
    expect('}');
  }
  template <class Body>
  void array(const Body& body) {
    expect('[');
    if (take(']')) return;
    do {
      body();
    } while (take(','));
    expect(']');
  }

 private:
  void skip_string() {
    ++at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) fail("a string has no end");
    ++at_;
  }

  void escape(std::string& result) {
    const char c = at_ < text_.size() ? text_[at_++] : '\0';
    switch (c) {
      case 'b': result += '\b'; return;
      case 'f': result += '\f'; return;
      case 'n': result += '\n'; return;
      case 'r': result += '\r'; return;
      case 't': result += '\t'; return;
      case '"':
      case '\\':
      case '/': result += c; return;
      case 'u': break;
      default: fail("an escape that JSON does not have");
    }
    char32_t value = four_digits();
    if (value >= 0xD800 && value < 0xDC00 && text_.substr(at_, 2) == "\\u") {
      at_ += 2;
      const char32_t low = four_digits();
      if (low < 0xDC00 || low > 0xDFFF) fail("half a surrogate pair");
      value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    }
    if (value >= 0xD800 && value <= 0xDFFF) fail("half a surrogate pair");
    append_utf8(result, value);
  }

  char32_t four_digits() {
    unsigned value = 0;
    const std::string_view digits = text_.substr(std::min(at_, text_.size()), 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() < 4 || error != std::errc() || end != digits.data() + 4) fail("\\u without four digits");
    at_ += 4;
    return value;
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
};

void read_vocab(Reader& reader, JsonLists& lists) {
  reader.object([&](const std::string& token) { lists.vocab.emplace_back(token, reader.integer()); });
}

/// Reads an entry of a Unigram vocabulary: ["token", score].
void read_scored(Reader& reader, JsonLists& lists) {
  reader.expect('[');
  std::string token = reader.string();
  reader.expect(',');
  lists.scored.emplace_back(std::move(token), reader.number());
  reader.expect(']');
}

/// Reads a merge: "a b" or, in newer files, ["a", "b"].
void read_merge(Reader& reader, JsonLists& lists) {
  if (reader.take('[')) {
    std::string left = reader.string();
    reader.expect(',');
    lists.merges.emplace_back(std::move(left), reader.string());
    reader.expect(']');
    return;
  }
  const std::string both = reader.string();
  const size_t space = both.find(' ');
  if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos) {
    reader.fail(str("the merge \"", both, "\" is not two tokens with a space between"));
  }
  lists.merges.emplace_back(both.substr(0, space), both.substr(space + 1));
}

}  // namespace

JsonLists take_lists(std::string_view text, const std::string& name) {
  JsonLists lists;
  Reader reader(text, name);
  size_t copied = 0;
  const auto replace_from = [&](size_t begin) {
    lists.rest += text.substr(copied, begin - copied);
    lists.rest += "null";
    copied = reader.place();
    // Keep the line breaks, so that errors in the remaining document give the right line.
    const std::string_view cut = text.substr(begin, copied - begin);
    lists.rest.append(static_cast<size_t>(std::ranges::count(cut, '\n')), '\n');
  };
  reader.object([&](const std::string& section) {
    if (section != "model" || reader.peek() != '{') return reader.skip();
    reader.object([&](const std::string& key) {
      const char first = reader.peek();
      const size_t begin = reader.place();
      if (key == "vocab" && first == '{') {
        read_vocab(reader, lists);
        replace_from(begin);
      } else if (key == "vocab" && first == '[') {
        reader.array([&] { read_scored(reader, lists); });
        replace_from(begin);
      } else if (key == "merges" && first == '[') {
        reader.array([&] { read_merge(reader, lists); });
        replace_from(begin);
      } else {
        reader.skip();
      }
    });
  });
  lists.rest += text.substr(copied);
  return lists;
}

}  // namespace lamina::text
