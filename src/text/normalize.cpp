#include "lamina/text/normalize.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "lamina/base/error.h"
#include "lamina/text/utf8.h"

namespace lamina::text {
namespace {

constexpr size_t kMaxGrowth = 64;
constexpr size_t kMaxAddedBytes = 4096;

/// Appends the text with replacements. Stops if `out` exceeds `limit` bytes.
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

/// Length of the leading ASCII, which no normal form changes; 0 if its last character could combine with the non-ASCII
/// character after it.
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

}  // namespace

std::string normalized(std::string_view text, const std::vector<NormalizerStep>& steps, const std::string& name) {
  const size_t limit = kMaxGrowth * text.size() + kMaxAddedBytes;
  std::string now(text);
  for (size_t i = 0; i < steps.size(); ++i) {
    const NormalizerStep& step = steps[i];
    std::string next;
    next.reserve(now.size() + 8);
    switch (step.kind) {
      case NormalizerStep::Kind::prepend: next = now.empty() ? now : step.content + now; break;
      case NormalizerStep::Kind::replace: append_replaced(now, step, limit, next); break;
      default: append_normal_form(now, step.kind, next); break;
    }
    LAMINA_CHECK(next.size() <= limit, name, ": normalizer ", i + 1, " of ", steps.size(), " makes more than ", limit,
                 " bytes of a text of ", text.size(), "; remove the Replace or Prepend steps that multiply the text");
    now = std::move(next);
  }
  return now;
}

}  // namespace lamina::text
