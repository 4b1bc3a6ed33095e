// Python's ==, < and `in`.
#include <algorithm>

#include "lamina/base/error.h"
#include "lamina/text/template/loop.h"
#include "lamina/text/template/unicode.h"
#include "lamina/text/template/value.h"

namespace lamina::text::jinja {
namespace {

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::ranges::all_of(a.entries, [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

int compare_numbers(const Value& a, const Value& b) {
  if (!a.is_real() && !b.is_real()) return a.integer() < b.integer() ? -1 : static_cast<int>(a.integer() > b.integer());
  return a.real() < b.real() ? -1 : static_cast<int>(a.real() > b.real());
}

}  // namespace

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return a.is_real() || b.is_real() ? a.real() == b.real() : a.integer() == b.integer();
  }
  if (a.is_string() && b.is_string()) return a.text() == b.text();
  if (a.is_sequence() && b.is_sequence()) {
    if (&a.items() == &b.items()) return true;
    if (a.items().kind != b.items().kind || a.is_sequence(SequenceKind::generator)) return false;
    return std::ranges::equal(a.items().items, b.items().items, equal);
  }
  if (a.is_dict() && b.is_dict()) return equal_dicts(a.entries(), b.entries());
  if (a.is_callable() && b.is_callable()) return &a.callable() == &b.callable();
  if (a.name_space() != nullptr || b.name_space() != nullptr) return a.name_space() == b.name_space();
  if (a.loop() != nullptr || b.loop() != nullptr) return a.loop() == b.loop();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

int compare(const Value& a, const Value& b, std::string_view symbol) {
  if (a.is_undefined()) a.fail_undefined();
  if (b.is_undefined()) b.fail_undefined();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) return a.text().compare(b.text());  // UTF-8 has the order of code points
  const bool lists = a.is_sequence() && b.is_sequence() && a.items().kind == b.items().kind;
  if (!lists || a.is_sequence(SequenceKind::generator)) {
    throw Failure(
        str("'", symbol, "' not supported between instances of '", a.type_name(), "' and '", b.type_name(), "'"));
  }
  const auto& left = a.items().items;
  const auto& right = b.items().items;
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (!equal(left[i], right[i])) return compare(left[i], right[i], symbol);
  }
  return left.size() < right.size() ? -1 : static_cast<int>(left.size() > right.size());
}

bool contains(const Value& container, const Value& element) {
  if (container.is_string()) {
    if (!element.is_string()) {
      throw Failure(str("'in <string>' requires string as left operand, not ", element.type_name()));
    }
    return find_text(container.text(), element.text()) != std::string_view::npos;
  }
  if (container.is_dict()) return container.entries().find(element) != nullptr;
  if (!container.is_iterable()) throw Failure(str("argument of type '", container.type_name(), "' is not iterable"));
  return std::ranges::any_of(container.iterate(), [&](const Value& one) { return equal(one, element); });
}

}  // namespace lamina::text::jinja
