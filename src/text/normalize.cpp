#include "lamina/text/normalize.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "lamina/base/error.h"
#include "lamina/text/unicode_steps.h"
#include "lamina/text/utf8.h"

namespace lamina::text {
namespace {

constexpr size_t kMaxGrowth = 64;
constexpr size_t kMaxAddedBytes = 4096;

/// Appends the text with replacements. Stops when `out` exceeds `limit` bytes.
void append_replaced(std::string_view text, const NormalizerStep& step, size_t limit, std::string& out) {
  for (size_t at = 0; out.size() <= limit;) {
    const size_t found = text.find(step.pattern, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) return;
    out += step.content;
    at = found + step.pattern.size();
  }
}

int form_of(NormalizerStep::Kind kind) {
  switch (kind) {
    case NormalizerStep::Kind::nfc: return UTF8PROC_COMPOSE;
    case NormalizerStep::Kind::nfd: return UTF8PROC_DECOMPOSE;
    case NormalizerStep::Kind::nfkc: return UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    default: return UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
  }
}

/// Appends valid UTF-8 text in a Unicode normal form.
void append_form(std::string_view text, NormalizerStep::Kind kind, std::string& out) {
  if (text.empty()) return;
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | form_of(kind)));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, std::free);
  LAMINA_CHECK(length >= 0, "normalising text of ", text.size(), " bytes failed: ", utf8proc_errmsg(length));
  out.append(reinterpret_cast<const char*>(result), static_cast<size_t>(length));
}

/// Length of the leading ASCII text, which no normal form changes. 0 if its last character could combine with the
/// non-ASCII character after it.
size_t ascii_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  if (at == text.size()) return at;
  return at == 0 ? 0 : at - 1;
}

void append_normal_form(std::string_view text, NormalizerStep::Kind kind, std::string& out) {
  while (!text.empty()) {
    const size_t plain = ascii_prefix(text);
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    const size_t valid = valid_prefix(text);
    append_form(text.substr(0, valid), kind, out);
    text.remove_prefix(valid);
    while (!text.empty() && first_code_point(text.substr(0, 4)).length == 0) {
      out += text[0];
      text.remove_prefix(1);
    }
  }
}

/// Appends the text, with the matches of the expression replaced. Invalid UTF-8 is never matched.
void append_matches_replaced(std::string_view text, const Regex& regex, const std::string& content, size_t limit,
                             std::string& out) {
  while (!text.empty() && out.size() <= limit) {
    const std::string_view valid = text.substr(0, valid_prefix(text));
    if (valid.empty()) {
      out += text[0];
      text.remove_prefix(1);
      continue;
    }
    Regex::Search search(regex, valid);
    for (size_t at = 0; at < valid.size() && out.size() <= limit;) {
      const Regex::Span span = search.next(at);
      out += valid.substr(at, span.begin - at);
      if (span.end > span.begin) out += content;
      at = span.end;
    }
    text.remove_prefix(valid.size());
  }
}

void append_bert(std::string_view text, const NormalizerStep& step, std::string& out) {
  std::string cleaned;
  append_bert_cleaned(text, step, cleaned);
  if (step.strip_accents) {
    std::string decomposed;
    append_normal_form(cleaned, NormalizerStep::Kind::nfd, decomposed);
    cleaned.clear();
    append_without_accents(decomposed, /*all_marks=*/false, cleaned);
  }
  if (step.lowercase) {
    append_lowercase(cleaned, out);
  } else {
    out += cleaned;
  }
}

}  // namespace

Normalizer::Normalizer(std::vector<NormalizerStep> steps, const std::string& name) : name_(name) {
  using Kind = NormalizerStep::Kind;
  steps_.reserve(steps.size());  // a Charsmap points into its step, so steps must not move
  for (NormalizerStep& step : steps) {
    Step& made = steps_.emplace_back(Step{std::move(step), {}, {}});
    if (made.what.kind == Kind::replace_regex) made.regex.emplace(made.what.pattern, false, name);
    if (made.what.kind == Kind::charsmap || made.what.kind == Kind::charsmap_graphemes) {
      made.charsmap.emplace(made.what.content, name);
    }
  }
}

std::string Normalizer::operator()(std::string_view text) const {
  using Kind = NormalizerStep::Kind;
  const size_t limit = kMaxGrowth * text.size() + kMaxAddedBytes;
  std::string now(text);
  for (size_t i = 0; i < steps_.size(); ++i) {
    const NormalizerStep& step = steps_[i].what;
    std::string next;
    next.reserve(now.size() + 8);
    switch (step.kind) {
      case Kind::prepend: next = now.empty() ? now : step.content + now; break;
      case Kind::replace: append_replaced(now, step, limit, next); break;
      case Kind::replace_regex: append_matches_replaced(now, *steps_[i].regex, step.content, limit, next); break;
      case Kind::bert: append_bert(now, step, next); break;
      case Kind::strip_accents: append_without_accents(now, /*all_marks=*/true, next); break;
      case Kind::lowercase: append_lowercase(now, next); break;
      case Kind::strip: next = stripped(now, step.left, step.right); break;
      case Kind::nmt: append_nmt(now, next); break;
      case Kind::charsmap: append_charsmap(now, *steps_[i].charsmap, next); break;
      case Kind::charsmap_graphemes: append_charsmap_graphemes(now, *steps_[i].charsmap, next); break;
      default: append_normal_form(now, step.kind, next); break;
    }
    LAMINA_CHECK(next.size() <= limit, name_, ": normalizer ", i + 1, " of ", steps_.size(), " makes more than ", limit,
                 " bytes of a text of ", text.size(), "; remove the Replace or Prepend steps that multiply the text");
    now = std::move(next);
  }
  return now;
}

std::string normalized(std::string_view text, const std::vector<NormalizerStep>& steps, const std::string& name) {
  return Normalizer(steps, name)(text);
}

}  // namespace lamina::text
