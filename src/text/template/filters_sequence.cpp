// Filters of sequences: first, join, sort, unique, …
#include <algorithm>

#include "lamina/base/error.h"
#include "lamina/text/template/arguments.h"
#include "lamina/text/template/filters.h"
#include "lamina/text/template/interpreter.h"
#include "lamina/text/template/unicode.h"

namespace lamina::text::jinja {
namespace {

Value first_filter(Interpreter& run, const Value& input, const Arguments& /*given*/) {
  const Value empty = Value::undefined("No first item, sequence was empty.");
  if (input.is_sequence(SequenceKind::generator)) {
    const Sequence& from = input.items();
    if (from.consumed < from.items.size()) return from.items[from.consumed++];
    if (!from.failure.empty()) throw Failure(from.failure);
    return empty;
  }
  if (input.is_sequence()) return input.items().items.empty() ? empty : input.items().items[0];
  const std::vector<Value> items = run.iterate(input);
  return items.empty() ? empty : items[0];
}

Value last_filter(Interpreter& run, const Value& input, const Arguments& /*given*/) {
  if (input.is_sequence(SequenceKind::generator))
    throw Failure("last: an iterator has no last item; put `| list` first");
  const std::vector<Value> items = run.iterate(input);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value length_filter(Interpreter& /*run*/, const Value& input, const Arguments& /*given*/) { return input.length(); }

Value list_filter(Interpreter& run, const Value& input, const Arguments& /*given*/) {
  return run.list(run.iterate(input));
}

Value reverse_filter(Interpreter& run, const Value& input, const Arguments& /*given*/) {
  std::vector<Value> items = run.iterate(input);
  std::ranges::reverse(items);
  if (!input.is_string()) return run.generator(std::move(items));
  std::string text;
  for (const Value& item : items) text += item.text();
  return run.text(std::move(text));
}

Value join_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments arguments("join", given, {"d", "attribute"});
  const std::string separator = to_text(arguments.value_or(0, ""));
  const Value path = arguments.value_or(1, {});
  std::string joined;
  bool first = true;
  for (const Value& item : run.iterate(input)) {
    const Value value = attribute_path(run, item, path);
    run.charge(value.size() + separator.size());
    if (!first) joined += separator;
    first = false;
    joined += to_text(value);
    if (joined.size() > run.limits().max_output) break;
  }
  return run.text(std::move(joined));
}

Value items_filter(Interpreter& run, const Value& input, const Arguments& /*given*/) {
  if (input.is_undefined()) return run.generator({});
  if (!input.is_dict()) throw Failure(str("items: expected a dict, got ", input.type_name()));
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.entries().entries) pairs.push_back(Value::tuple({key, value}));
  return run.generator(std::move(pairs));
}

struct Keyed {
  std::vector<Value> keys;
  Value item;
};

/// Sorts stably by keys. Charges the work for the comparisons.
void sort_by_keys(Interpreter& run, std::vector<Keyed>& all, bool reverse) {
  const auto less = [&](const Keyed& a, const Keyed& b) {
    for (size_t i = 0; i < a.keys.size(); ++i) {
      run.charge(std::min(a.keys[i].size(), b.keys[i].size()));
      if (equal(a.keys[i], b.keys[i])) continue;
      return compare(a.keys[i], b.keys[i], "<") < 0;
    }
    return false;
  };
  if (reverse) {
    std::ranges::stable_sort(all, [&](const Keyed& a, const Keyed& b) { return less(b, a); });
  } else {
    std::ranges::stable_sort(all, less);
  }
}

std::vector<Value> items_of(std::vector<Keyed> all) {
  std::vector<Value> items;
  for (Keyed& one : all) items.push_back(std::move(one.item));
  return items;
}

/// The comma-separated paths in a text such as "a,b.c". Any other value is a single path.
std::vector<Value> paths_in(const Value& attribute) {
  if (!attribute.is_string()) return {attribute};
  std::vector<Value> paths;
  for (std::string_view rest = attribute.text();;) {
    const size_t comma = rest.find(',');
    paths.emplace_back(rest.substr(0, comma));
    if (comma == std::string_view::npos) return paths;
    rest.remove_prefix(comma + 1);
  }
}

Value sort_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments arguments("sort", given, {"reverse", "case_sensitive", "attribute"});
  const bool sensitive = arguments.truth_or(1, false);
  const std::vector<Value> paths = paths_in(arguments.value_or(2, {}));
  std::vector<Keyed> all;
  for (const Value& item : run.iterate(input)) {
    Keyed keyed{{}, item};
    for (const Value& path : paths) {
      const Value key = attribute_path(run, item, path);
      run.charge(key.size());
      keyed.keys.push_back(sensitive ? key : ignore_case(key));
    }
    all.push_back(std::move(keyed));
  }
  sort_by_keys(run, all, arguments.truth_or(0, false));
  return run.list(items_of(std::move(all)));
}

Value dictsort_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments arguments("dictsort", given, {"case_sensitive", "by", "reverse"});
  if (!input.is_dict()) throw Failure(str("dictsort: expected a dict, got ", input.type_name()));
  const std::string by = to_text(arguments.value_or(1, "key"));
  if (by != "key" && by != "value") throw Failure("dictsort: `by` must be 'key' or 'value'");
  std::vector<Keyed> all;
  for (const auto& [key, value] : input.entries().entries) {
    const Value& sorted_by = by == "key" ? key : value;
    all.push_back({{arguments.truth_or(0, false) ? sorted_by : ignore_case(sorted_by)}, Value::tuple({key, value})});
  }
  sort_by_keys(run, all, arguments.truth_or(2, false));
  return run.list(items_of(std::move(all)));
}

Value unique_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments arguments("unique", given, {"case_sensitive", "attribute"});
  std::vector<Value> seen;
  std::vector<Value> unique;
  for (const Value& item : run.iterate(input)) {
    const Value found = attribute_path(run, item, arguments.value_or(1, {}));
    const Value key = arguments.truth_or(0, false) ? found : ignore_case(found);
    run.charge(key.size() * (1 + seen.size()));
    if (std::ranges::any_of(seen, [&](const Value& one) { return equal(one, key); })) continue;
    seen.push_back(key);
    unique.push_back(item);
  }
  return run.generator(std::move(unique));
}

template <bool largest>
Value extreme_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments arguments(largest ? "max" : "min", given, {"case_sensitive", "attribute"});
  const std::vector<Value> items = run.iterate(input);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key_of = [&](const Value& item) {
    const Value key = attribute_path(run, item, arguments.value_or(1, {}));
    run.charge(key.size());
    return arguments.truth_or(0, false) ? key : ignore_case(key);
  };
  size_t best = 0;
  Value best_key = key_of(items[0]);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(items[i]);
    const int order = compare(key, best_key, largest ? ">" : "<");
    if (largest ? order <= 0 : order >= 0) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

Value sum_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments arguments("sum", given, {"attribute", "start"});
  Value sum = arguments.value_or(1, 0);
  if (sum.is_string()) throw Failure("sum: cannot sum strings; use join");
  for (const Value& item : run.iterate(input))
    sum = run.binary("+", sum, attribute_path(run, item, arguments.value_or(0, {})));
  return sum;
}

Value batch_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments arguments("batch", given, {"linecount", "fill_with"});
  const int64_t size = arguments.integer(0);
  if (size < 1 || size > static_cast<int64_t>(run.limits().max_output / sizeof(Value))) {
    throw Failure(str("batch: linecount is ", size, ", which is out of range"));
  }
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (const Value& item : run.iterate(input)) {
    if (batch.size() == static_cast<size_t>(size)) batches.push_back(run.list(std::exchange(batch, {})));
    batch.push_back(item);
  }
  if (!batch.empty()) {
    const Value fill = arguments.value_or(1, {});
    run.charge(fill.is_none() ? 0 : static_cast<size_t>(size) * sizeof(Value));
    if (!fill.is_none()) batch.resize(static_cast<size_t>(size), fill);
    batches.push_back(run.list(std::move(batch)));
  }
  return run.generator(std::move(batches));
}

Value groupby_filter(Interpreter& run, const Value& input, const Arguments& given) {
  const BoundArguments arguments("groupby", given, {"attribute", "default", "case_sensitive"});
  const bool sensitive = arguments.truth_or(2, false);
  const auto value_of = [&](const Value& item) {
    Value value = attribute_path(run, item, arguments.value(0), arguments.value_or(1, {}));
    run.charge(value.size());
    return value;
  };
  std::vector<Keyed> all;
  for (const Value& item : run.iterate(input)) {
    all.push_back({{sensitive ? value_of(item) : ignore_case(value_of(item))}, item});
  }
  sort_by_keys(run, all, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < all.size();) {
    size_t end = begin;
    std::vector<Value> group;
    while (end < all.size() && equal(all[end].keys[0], all[begin].keys[0])) group.push_back(all[end++].item);
    groups.push_back(Value::tuple({value_of(all[begin].item), run.list(std::move(group))}));
    begin = end;
  }
  return run.list(std::move(groups));
}

}  // namespace

const FilterTable& sequence_filters() {
  static const FilterTable table = {
      {"first", first_filter},       {"last", last_filter},     {"length", length_filter},
      {"count", length_filter},      {"list", list_filter},     {"reverse", reverse_filter},
      {"join", join_filter},         {"items", items_filter},   {"sort", sort_filter},
      {"dictsort", dictsort_filter}, {"unique", unique_filter}, {"min", extreme_filter<false>},
      {"max", extreme_filter<true>}, {"sum", sum_filter},       {"batch", batch_filter},
      {"groupby", groupby_filter},
  };
  return table;
}

}  // namespace lamina::text::jinja
