#include "lamina/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "lamina/base/error.h"
#include "lamina/text/utf8.h"

namespace lamina::text {
namespace {

/// Unicode White_Space, which is \s in the dialects of tokenizers. PCRE2's \s also matches U+180E.
constexpr const char* kSpaces = R"(\p{Z}\x{9}-\x{d}\x{85})";

/// Translates the expression to PCRE2 syntax.
std::string translated(const std::string& pattern, const std::string& name) {
  std::string out;
  bool in_class = false;
  size_t class_begin = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      LAMINA_CHECK(escaped != 'h' && escaped != 'H' && escaped != 'X' && escaped != 'R' && escaped != 'G', name,
                   ": the pattern ", pattern, " has \\", escaped,
                   ", which regular expression libraries read differently; it is not supported");
      LAMINA_CHECK(escaped != 'S' || !in_class, name, ": the pattern ", pattern,
                   " has \\S within brackets, which is not supported");
      if (escaped == 's') {
        out += in_class ? kSpaces : str('[', kSpaces, ']');
      } else if (escaped == 'S') {
        out += str("[^", kSpaces, ']');
      } else {
        out += c;
        out += escaped;
      }
      continue;
    }
    if (in_class) {
      const bool opens = c == '[' && pattern.compare(i, 2, "[:") != 0;
      LAMINA_CHECK(!opens && pattern.compare(i, 2, "&&") != 0, name, ": the pattern ", pattern,
                   " has a set within a set, which is not supported");
      const bool first = i == class_begin + 1 || (i == class_begin + 2 && pattern[class_begin + 1] == '^');
      if (c == '[') {  // [:alpha:] within a set: its bracket does not end the set
        const size_t end = pattern.find(":]", i);
        LAMINA_CHECK(end != std::string::npos, name, ": the pattern ", pattern, " has [: without :]");
        out += pattern.substr(i, end + 2 - i);
        i = end + 1;
        continue;
      }
      if (c == ']' && !first) in_class = false;
    } else if (c == '[') {
      in_class = true;
      class_begin = i;
    }
    out += c;
  }
  return out;
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  std::string pattern;
  std::string name;
  bool jit = false;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(const std::string& pattern, bool literal, const std::string& name) : code_(std::make_unique<Code>()) {
  const std::string source = literal ? pattern : translated(pattern, name);
  const uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_DOLLAR_ENDONLY);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->pattern = pattern;
  code_->name = name;
  code_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(), options, &error, &offset, nullptr);
  if (code_->code == nullptr) {
    char message[256];
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
    throw Error(str(name, ": the pattern ", pattern, " is not a regular expression: ", message, " at ", offset));
  }
  // If the JIT does not support this CPU, matching is slower but gives the same result.
  code_->jit = pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

struct Regex::Search::Data {
  pcre2_match_data* match;
  ~Data() { pcre2_match_data_free(match); }
};

Regex::Search::Search(const Regex& regex, std::string_view text)
    : regex_(regex), text_(text), data_(new Data{pcre2_match_data_create(1, nullptr)}) {
  LAMINA_CHECK(data_->match != nullptr, "no memory for matching a pattern");
}

Regex::Search::~Search() = default;

Regex::Span Regex::Search::next(size_t from) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text_.data());
  const Code& code = *regex_.code_;
  while (from < text_.size()) {
    int found = PCRE2_ERROR_JIT_STACKLIMIT;
    if (code.jit) {
      found = pcre2_jit_match(code.code, subject, text_.size(), from, PCRE2_NO_UTF_CHECK, data_->match, nullptr);
    }
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter allocates memory as needed
      found =
          pcre2_match(code.code, subject, text_.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data_->match, nullptr);
    }
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      char message[256];
      pcre2_get_error_message(found, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
      throw Error(str(code.name, ": matching the pattern ", code.pattern, " at byte ", from, " failed: ", message));
    }
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(data_->match);
    if (span[1] > span[0]) return {span[0], span[1]};
    from = span[1] + std::max<size_t>(1, first_code_point(text_.substr(span[1], 4)).length);
  }
  return {text_.size(), text_.size()};
}

}  // namespace lamina::text
