// Filters of text, and of any value: tojson, default, string, …
#include <algorithm>

#include "lamina/base/error.h"
#include "lamina/text/template/arguments.h"
#include "lamina/text/template/filters.h"
#include "lamina/text/template/interpreter.h"
#include "lamina/text/template/unicode.h"
#include "lamina/text/utf8.h"

namespace lamina::text::jinja {
namespace {

/// str(value); charges the work.
std::string text_of(Interpreter& run, const Value& value) {
  run.charge(value.size());
  return to_text(value);
}

/// A filter without arguments that maps text to text.
template <std::string (*filter)(std::string_view)>
Value simple_text_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments none("this filter", given, {});
  const Value result = run.text(filter(text_of(run, input)));
  return input.is_markup() ? result.as_markup() : result;
}

/// json.dumps as transformers calls it: json.dumps(x, ensure_ascii=False, indent=None, separators=None,
/// sort_keys=False).
Value tojson_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments arguments("tojson", given, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.max_size = run.limits().max_output;
  style.ascii = arguments.truth_or(0, false);
  style.sorted = arguments.truth_or(3, false);
  const Value indent = arguments.value_or(1, {});
  if (!indent.is_none()) {
    style.indented = true;
    style.item_separator.assign(1, ',');
    style.indent = indent.is_string()
                       ? indent.text()
                       : std::string(static_cast<size_t>(std::clamp<int64_t>(arguments.integer(1), 0, 1000)), ' ');
  }
  const Value separators = arguments.value_or(2, {});
  if (!separators.is_none()) {
    const std::vector<Value> two = run.iterate(separators);
    if (two.size() != 2) throw Failure("tojson: separators must be two texts: (item separator, key separator)");
    style.item_separator = to_text(two[0]);
    style.key_separator = to_text(two[1]);
  }
  run.charge(input.size());
  return run.text(to_json(input, style));
}

Value trim_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments arguments("trim", given, {"chars"});
  const std::string text = text_of(run, input);
  const bool spaces = arguments.value_or(0, {}).is_none();
  run.charge(spaces ? 0 : text.size() * (1 + arguments.text(0).size() / 16));
  const std::string_view trimmed = spaces ? strip(text, Side::both) : strip(text, Side::both, arguments.text(0));
  const Value result = run.text(std::string(trimmed));
  return input.is_markup() ? result.as_markup() : result;
}

Value default_filter(Interpreter& /*run*/, const Value& input, const Arguments& given) {
  const BoundArguments arguments("default", given, {"default_value", "boolean"});
  const bool missing = input.is_undefined() || (arguments.truth_or(1, false) && !input.truth());
  return missing ? arguments.value_or(0, "") : input;
}

Value replace_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments arguments("replace", given, {"old", "new", "count"});
  const Value count = arguments.value_or(2, {});
  return run.text(replace_text(text_of(run, input), text_of(run, arguments.value(0)), text_of(run, arguments.value(1)),
                               count.is_none() ? -1 : arguments.integer(2), run.limits().max_output));
}

Value indent_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments arguments("indent", given, {"width", "first", "blank"});
  const Value width = arguments.value_or(0, 4);
  if (input.is_undefined()) input.fail_undefined();
  if (!input.is_string()) throw Failure(str("indent: expected a str, got ", input.type_name()));
  const std::string by =
      width.is_string()
          ? width.text()
          : std::string(static_cast<size_t>(std::clamp<int64_t>(arguments.integer_or(0, 4), 0, 100'000)), ' ');
  const std::string text = input.text() + "\n";
  const std::vector<std::string_view> lines = split_lines(text);
  run.charge(text.size() + by.size() * lines.size());
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    const bool indents = i == 0 ? arguments.truth_or(1, false) : !lines[i].empty() || arguments.truth_or(2, false);
    if (indents) out += by;
    out += lines[i];
    if (out.size() > run.limits().max_output) break;
  }
  return run.text(std::move(out));
}

/// Jinja's title: words begin after space, '-', '(', '{', '[' and '<'.
std::string title_words(std::string_view text) {
  std::string out;
  bool begins = true;
  for (const std::string_view one : characters(text)) {
    const char32_t c = first_code_point(one).value;
    const bool separator = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    out += separator ? std::string(one) : begins ? to_upper(one) : to_lower(one);
    begins = separator;
  }
  return out;
}

Value title_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments none("title", given, {});
  return run.text(title_words(text_of(run, input)));
}

Value string_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments none("string", given, {});
  return input.is_string() ? input : run.text(text_of(run, input));
}

Value safe_filter(Interpreter& run, const Value& input, const Arguments& given) {
  return string_filter(run, input, given).as_markup();
}

Value escape_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments none("escape", given, {});
  return input.is_markup() ? input : run.text(escape_html(text_of(run, input))).as_markup();
}

Value forceescape_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments none("forceescape", given, {});
  return run.text(escape_html(text_of(run, input))).as_markup();
}

Value format_filter(Interpreter& run, const Value& input, const Arguments& given) {
  if (!given.positional.empty() && !given.named.empty()) {
    throw Failure("format: takes arguments with or without names, not both");
  }
  std::vector<std::pair<Value, Value>> named;
  for (const auto& [name, value] : given.named) named.emplace_back(name, value);
  const Value values = named.empty() ? Value::tuple(given.positional) : Value::dict(std::move(named));
  return run.text(percent_format(run, text_of(run, input), values));
}

Value truncate_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments arguments("truncate", given, {"length", "killwords", "end", "leeway"});
  const std::string text = text_of(run, input);
  const std::string end = to_text(arguments.value_or(2, "..."));
  const int64_t length = arguments.integer_or(0, 255);
  const Value leeway = arguments.value_or(3, {});
  const int64_t margin = leeway.is_none() ? 5 : arguments.integer(3);
  const auto end_length = static_cast<int64_t>(count_characters(end));
  if (length < end_length || margin < 0)
    throw Failure("truncate: the length is below that of `end`, or leeway below 0");
  if (static_cast<int64_t>(count_characters(text)) - margin <= length) return run.text(text);
  std::string cut = text.substr(0, byte_offset(text, static_cast<size_t>(length - end_length)));
  if (!arguments.truth_or(1, false)) cut = cut.substr(0, cut.rfind(' '));
  return run.text(cut + end);
}

Value wordcount_filter(Interpreter& run, const Value& input, const Arguments& /*given*/) {
  int64_t words = 0;
  bool in_word = false;
  for (const char32_t c : code_points(text_of(run, input))) {
    const bool part = is_letter(c) || is_digit(c) || c == '_';
    words += part && !in_word ? 1 : 0;
    in_word = part;
  }
  return words;
}

Value attr_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const std::string name = to_text(BoundArguments("attr", given, {"name"}).value(0));
  if (input.is_dict() && !bound_method(input, name)) {
    return Value::undefined(str("'dict object' has no attribute '", name, "'"));
  }
  return run.attribute(input, name);
}

}  // namespace

const FilterTable& text_filters() {
  static const FilterTable table = {
      {"tojson", tojson_filter},
      {"trim", trim_filter},
      {"default", default_filter},
      {"d", default_filter},
      {"replace", replace_filter},
      {"indent", indent_filter},
      {"upper", simple_text_filter<to_upper>},
      {"lower", simple_text_filter<to_lower>},
      {"capitalize", simple_text_filter<capitalized>},
      {"title", title_filter},
      {"escape", escape_filter},
      {"e", escape_filter},
      {"forceescape", forceescape_filter},
      {"string", string_filter},
      {"safe", safe_filter},
      {"format", format_filter},
      {"truncate", truncate_filter},
      {"wordcount", wordcount_filter},
      {"attr", attr_filter},
  };
  return table;
}

}  // namespace lamina::text::jinja
