// Python's methods of str.
#include <algorithm>

#include "lamina/base/error.h"
#include "lamina/text/template/arguments.h"
#include "lamina/text/template/interpreter.h"
#include "lamina/text/template/methods.h"
#include "lamina/text/template/unicode.h"

namespace lamina::text::jinja {
namespace {

/// A method without arguments that maps text to text.
template <std::string (*method)(std::string_view)>
Value case_method(Interpreter& run, const Value& self, const Arguments& given) {
  const BoundArguments none("a method of str", given, {});
  return run.text(method(self.text()));
}

template <Side side>
Value strip_method(Interpreter& run, const Value& self, const Arguments& given) {
  const BoundArguments arguments("strip", given, {"chars"});
  if (arguments.value_or(0, {}).is_none()) return run.text(std::string(strip(self.text(), side)));
  run.charge(self.text().size() * (1 + arguments.text(0).size() / 16));
  return run.text(std::string(strip(self.text(), side, arguments.text(0))));
}

/// The part self[start:end] that a method searches, and its position in characters.
struct Part {
  std::string_view text;
  size_t start = 0;
};

Part searched_part(Interpreter& run, const Value& self, const BoundArguments& arguments) {
  run.charge(self.text().size());
  const auto length = static_cast<int64_t>(count_characters(self.text()));
  const auto bound = [&](size_t parameter, int64_t fallback) {
    if (arguments.value_or(parameter, {}).is_none()) return fallback;
    const int64_t index = arguments.integer(parameter);
    return std::clamp<int64_t>(index < 0 ? std::max(index, -length) + length : index, 0, length);
  };
  const auto start = static_cast<size_t>(bound(1, 0));
  const auto end = static_cast<size_t>(bound(2, length));
  const size_t first = byte_offset(self.text(), start);
  const size_t last = byte_offset(self.text(), end);
  return {std::string_view(self.text()).substr(first, last < first ? 0 : last - first), start};
}

template <bool at_start>
Value affix_method(Interpreter& run, const Value& self, const Arguments& given) {
  const BoundArguments arguments(at_start ? "startswith" : "endswith", given, {"prefix", "start", "end"});
  const std::string_view text = searched_part(run, self, arguments).text;
  const auto matches = [&](const std::string& part) {
    return at_start ? text.starts_with(part) : text.ends_with(part);
  };
  const Value& wanted = arguments.value(0);
  if (!wanted.is_sequence(SequenceKind::tuple)) return matches(arguments.text(0));
  run.charge(wanted.size());
  return std::ranges::any_of(wanted.items().items,
                             [&](const Value& one) { return one.is_string() && matches(one.text()); });
}

template <bool last, bool must_exist>
Value find_method(Interpreter& run, const Value& self, const Arguments& given) {
  const BoundArguments arguments("find", given, {"sub", "start", "end"});
  const Part part = searched_part(run, self, arguments);
  const std::string& wanted = arguments.text(0);
  const size_t found = last ? rfind_text(part.text, wanted) : find_text(part.text, wanted);
  if (found != std::string_view::npos) {
    return static_cast<int64_t>(part.start + count_characters(part.text.substr(0, found)));
  }
  if (must_exist) throw Failure("index: the text was not found; find returns -1 instead");
  return -1;
}

Value count_method(Interpreter& run, const Value& self, const Arguments& given) {
  const BoundArguments arguments("count", given, {"sub", "start", "end"});
  const std::string_view text = searched_part(run, self, arguments).text;
  const std::string& wanted = arguments.text(0);
  if (wanted.empty()) return static_cast<int64_t>(count_characters(text)) + 1;
  int64_t count = 0;
  for (size_t at = 0; (at = find_text(text, wanted, at)) != std::string_view::npos; at += wanted.size()) ++count;
  return count;
}

Value replace_method(Interpreter& run, const Value& self, const Arguments& given) {
  const BoundArguments arguments("replace", given, {"old", "new", "count"});
  run.charge(self.text().size());
  return run.text(replace_text(self.text(), arguments.text(0), arguments.text(1), arguments.integer_or(2, -1),
                               run.limits().max_output));
}

Value join_method(Interpreter& run, const Value& self, const Arguments& given) {
  std::string joined;
  bool first = true;
  for (const Value& item : run.iterate(BoundArguments("join", given, {"iterable"}).value(0))) {
    if (!item.is_string()) throw Failure(str("join: expected texts, got ", item.type_name()));
    run.charge(item.text().size() + self.text().size());
    if (!first) joined += self.text();
    first = false;
    joined += item.text();
    if (joined.size() > run.limits().max_output) break;
  }
  return run.text(std::move(joined));
}

template <bool (*is_kind)(char32_t)>
Value all_are(Interpreter& run, const Value& self, const Arguments& given) {
  const BoundArguments none("a method of str", given, {});
  run.charge(self.text().size());
  return !self.text().empty() && std::ranges::all_of(code_points(self.text()), is_kind);
}

template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
Value cased_method(Interpreter& run, const Value& self, const Arguments& given) {
  const BoundArguments none("a method of str", given, {});
  run.charge(self.text().size());
  const std::vector<char32_t> points = code_points(self.text());
  return std::ranges::any_of(points, wanted) && std::ranges::none_of(points, other);
}

template <bool prefix>
Value remove_affix(Interpreter& run, const Value& self, const Arguments& given) {
  const BoundArguments arguments(prefix ? "removeprefix" : "removesuffix", given, {"affix"});
  std::string_view text = self.text();
  const std::string& affix = arguments.text(0);
  if (prefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!prefix && !affix.empty() && text.ends_with(affix)) text.remove_suffix(affix.size());
  return run.text(std::string(text));
}

/// ljust, rjust, center. `left` and `right` tell on which sides to pad.
template <bool left, bool right>
Value pad_method(Interpreter& run, const Value& self, const Arguments& given) {
  const BoundArguments arguments("ljust, rjust, center", given, {"width", "fillchar"});
  const std::string fill = arguments.has(1) ? arguments.text(1) : " ";
  const int64_t width = std::min<int64_t>(arguments.integer(0), static_cast<int64_t>(run.limits().max_output / 4));
  const int64_t missing = std::max<int64_t>(0, width - self.length());
  run.charge(static_cast<size_t>(missing) * fill.size());
  // Like Python, center puts the extra character on the left if the width is odd.
  const int64_t before = left && right ? missing / 2 + (missing & width & 1) : left ? missing : 0;
  std::string text;
  for (int64_t i = 0; i < before; ++i) text += fill;
  text += self.text();
  for (int64_t i = before; i < missing; ++i) text += fill;
  return run.text(std::move(text));
}

Value zfill_method(Interpreter& run, const Value& self, const Arguments& given) {
  const BoundArguments arguments("zfill", given, {"width"});
  const int64_t width = std::min<int64_t>(arguments.integer(0), static_cast<int64_t>(run.limits().max_output));
  const int64_t missing = std::max<int64_t>(0, width - self.length());
  const bool sign = self.text().starts_with('-') || self.text().starts_with('+');
  std::string text = self.text();
  return run.text(text.insert(sign ? 1 : 0, static_cast<size_t>(missing), '0'));
}

Value format_method(Interpreter& run, const Value& self, const Arguments& given) {
  return run.text(brace_format(run, self.text(), given));
}

bool is_alphanumeric(char32_t c) { return is_letter(c) || is_digit(c); }
bool is_ascii(char32_t c) { return c < 0x80; }

}  // namespace

// In split_methods.cpp.
Value split_method(Interpreter& run, const Value& self, const Arguments& given);
Value rsplit_method(Interpreter& run, const Value& self, const Arguments& given);
Value splitlines_method(Interpreter& run, const Value& self, const Arguments& given);
Value partition_method(Interpreter& run, const Value& self, const Arguments& given);
Value rpartition_method(Interpreter& run, const Value& self, const Arguments& given);

const MethodTable& string_methods() {
  static const MethodTable table = {
      {"upper", case_method<to_upper>},
      {"lower", case_method<to_lower>},
      {"casefold", case_method<to_lower>},
      {"capitalize", case_method<capitalized>},
      {"title", case_method<title_cased>},
      {"swapcase", case_method<swap_cased>},
      {"strip", strip_method<Side::both>},
      {"lstrip", strip_method<Side::left>},
      {"rstrip", strip_method<Side::right>},
      {"startswith", affix_method<true>},
      {"endswith", affix_method<false>},
      {"find", find_method<false, false>},
      {"rfind", find_method<true, false>},
      {"index", find_method<false, true>},
      {"rindex", find_method<true, true>},
      {"count", count_method},
      {"replace", replace_method},
      {"join", join_method},
      {"split", split_method},
      {"rsplit", rsplit_method},
      {"splitlines", splitlines_method},
      {"partition", partition_method},
      {"rpartition", rpartition_method},
      {"removeprefix", remove_affix<true>},
      {"removesuffix", remove_affix<false>},
      {"ljust", pad_method<false, true>},
      {"rjust", pad_method<true, false>},
      {"center", pad_method<true, true>},
      {"zfill", zfill_method},
      {"format", format_method},
      {"isspace", all_are<is_space>},
      {"isalpha", all_are<is_letter>},
      {"isdigit", all_are<is_digit>},
      {"isdecimal", all_are<is_digit>},
      {"isnumeric", all_are<is_digit>},
      {"isalnum", all_are<is_alphanumeric>},
      {"isprintable", all_are<is_printable>},
      {"isascii", all_are<is_ascii>},
      {"islower", cased_method<is_lower, is_upper>},
      {"isupper", cased_method<is_upper, is_lower>},
  };
  return table;
}

bool is_unsupported_string_method(std::string_view name) {
  static constexpr std::string_view kNames[] = {"encode",  "expandtabs", "format_map", "isidentifier",
                                                "istitle", "maketrans",  "translate"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

}  // namespace lamina::text::jinja
