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

/// The filter with this name, or null.
Filter find_filter(std::string_view name);

/// Looks up a path as the `attribute` of filters: "a.b" gives item.a.b, and "0" gives item.0. `fallback`, unless it is
/// None, replaces an undefined value after each step.
Value attribute_path(Interpreter& run, const Value& item, const Value& path, const Value& fallback = {});
/// A text in lower case, any other value unchanged. Filters compare these, unless they are case sensitive.
Value ignore_case(const Value& value);

}  // namespace lamina::text::jinja
