// Filters that apply a filter or a test to every item: map, select, reject, selectattr, rejectattr.
#include <algorithm>
#include <charconv>

#include "lamina/base/error.h"
#include "lamina/text/template/arguments.h"
#include "lamina/text/template/filters.h"
#include "lamina/text/template/interpreter.h"
#include "lamina/text/template/unicode.h"

namespace lamina::text::jinja {
namespace {

/// Calls visit(item, result) for every item of `input` (for none if `input` is false) and returns the result. Python's
/// generators are lazy, so their errors occur when they are used. Here they are computed at once, and an error is
/// stored and thrown on use.
template <class F>
Value lazily(Interpreter& run, const Value& input, const F& visit) {
  std::vector<Value> items;
  if (!input.truth()) return run.generator({});
  try {
    for (const Value& item : run.iterate(input)) visit(item, items);
  } catch (const Raised&) {
    throw;
  } catch (const Failure& failure) {
    return Value::generator(std::move(items), failure.what());
  }
  return run.generator(std::move(items));
}

Value map_filter(Interpreter& run, const Value& input, const Arguments& given) {
  if (given.positional.empty()) {
    const BoundArguments arguments("map", given, {"attribute", "default"});
    const Value path = arguments.value(0);
    const Value fallback = arguments.value_or(1, {});
    return lazily(run, input, [&](const Value& item, std::vector<Value>& mapped) {
      mapped.push_back(attribute_path(run, item, path, fallback));
    });
  }
  Arguments rest = given;
  rest.positional.erase(rest.positional.begin());
  const std::string name = to_text(given.positional[0]);
  return lazily(run, input, [&](const Value& item, std::vector<Value>& mapped) {
    mapped.push_back(run.call_filter(name, item, rest));
  });
}

/// Keeps the items for which a test equals `wanted`. The test applies to the item or to one of its attributes. Without
/// a test, the truth of the value counts.
Value select_if(Interpreter& run, const Value& input, const Arguments& given, bool wanted, bool by_attribute) {
  const size_t test = by_attribute ? 1 : 0;
  if (given.positional.size() < test) throw Failure("selectattr, rejectattr: the name of the attribute is missing");
  Arguments rest;
  rest.named = given.named;
  for (size_t i = test + 1; i < given.positional.size(); ++i) rest.positional.push_back(given.positional[i]);
  const bool has_test = given.positional.size() > test;
  const std::string name = has_test ? to_text(given.positional[test]) : "";
  return lazily(run, input, [&](const Value& item, std::vector<Value>& chosen) {
    const Value value = by_attribute ? attribute_path(run, item, given.positional[0]) : item;
    const bool holds = has_test ? run.call_test(name, value, rest) : value.truth();
    if (holds == wanted) chosen.push_back(item);
  });
}

template <bool wanted, bool by_attribute>
Value selection_filter(Interpreter& run, const Value& input, const Arguments& given) {
  return select_if(run, input, given, wanted, by_attribute);
}

}  // namespace

Value attribute_path(Interpreter& run, const Value& item, const Value& path, const Value& fallback) {
  const auto step = [&](const Value& from, const Value& key) {
    Value value = run.item(from, key);
    return value.is_undefined() && !fallback.is_none() ? fallback : value;
  };
  if (path.is_none()) return item;
  if (!path.is_string()) return step(item, path);
  Value value = item;
  std::string_view rest = path.text();
  for (;;) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    int64_t index = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number =
        !part.empty() && part[0] != '-' && parsed.ec == std::errc() && parsed.ptr == part.data() + part.size();
    value = step(value, number ? Value(index) : Value(part));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

Value ignore_case(const Value& value) { return value.is_string() ? Value(to_lower(value.text())) : value; }

const FilterTable& selection_filters() {
  static const FilterTable table = {
      {"map", map_filter},
      {"select", selection_filter<true, false>},
      {"reject", selection_filter<false, false>},
      {"selectattr", selection_filter<true, true>},
      {"rejectattr", selection_filter<false, true>},
  };
  return table;
}

Filter find_filter(std::string_view name) {
  for (const FilterTable* table : {&text_filters(), &number_filters(), &sequence_filters(), &selection_filters()}) {
    const auto found = table->find(name);
    if (found != table->end()) return found->second;
  }
  return nullptr;
}

Value Interpreter::call_filter(const std::string& name, const Value& input, const Arguments& arguments) {
  const Filter filter = find_filter(name);
  if (filter == nullptr) throw Failure(str("the filter '", name, "' is not supported"));
  charge(0);
  return filter(*this, input, arguments);
}

}  // namespace lamina::text::jinja
