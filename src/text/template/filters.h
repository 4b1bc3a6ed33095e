#pragma once

#include <string_view>
#include <unordered_map>

#include "lamina/text/template/value.h"

namespace lamina::text::jinja {

using Filter = Value (*)(Interpreter&, const Value& input, const Arguments& arguments);
using FilterTable = std::unordered_map<std::string_view, Filter>;

const FilterTable& text_filters();
const FilterTable& number_filters();
const FilterTable& sequence_filters();   ///< sort, join, first, …
const FilterTable& selection_filters();  ///< map, select, reject, …

/// The filter `name`, or null.
Filter find_filter(std::string_view name);

/// item.a.b or item.0 for the path "a.b" or "0", as filters take it in `attribute`. `fallback`, unless it is None,
/// replaces an undefined value after each step.
Value attribute_path(Interpreter& run, const Value& item, const Value& path, const Value& fallback = {});
/// Lower case of a text; other values as they are: what filters compare unless they are case sensitive.
Value ignore_case(const Value& value);

}  // namespace lamina::text::jinja
