#include "lamina/text/template/value.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lamina/base/error.h"
#include "lamina/text/template/loop.h"
#include "lamina/text/template/unicode.h"

namespace lamina::text::jinja {
namespace {

/// Depth and size of a container. Limits on them prevent stack overflow in recursive functions over values, and endless
/// printing of values that repeat a part (x = [x, x]).
struct Extent {
  size_t depth = 0;
  size_t size = kScalarSize;

  void add(const Value& part) {
    depth = std::max(depth, part.depth());
    size += part.size();
    if (depth >= kMaxValueDepth) throw Failure(str("a value is nested more than ", kMaxValueDepth, " levels deep"));
    if (size > kMaxValueSize) throw Failure(str("a value has more than ", kMaxValueSize, " bytes"));
  }
};

bool is_hashable(const Value& key) {
  if (key.is_sequence()) {
    return key.is_sequence(SequenceKind::tuple) && std::ranges::all_of(key.items().items, is_hashable);
  }
  return !key.is_dict();
}

const char* sequence_name(SequenceKind kind) {
  switch (kind) {
    case SequenceKind::list: return "list";
    case SequenceKind::tuple: return "tuple";
    case SequenceKind::range: return "range";
    case SequenceKind::view: return "dict_items";
    case SequenceKind::generator: return "generator";
  }
  return "";
}

Value value_of(const nlohmann::ordered_json& tree, size_t depth) {
  if (depth > kMaxValueDepth) throw Failure(str("JSON is nested more than ", kMaxValueDepth, " levels deep"));
  if (tree.is_boolean()) return tree.get<bool>();
  if (tree.is_number_unsigned() && tree.get<uint64_t>() > INT64_MAX) {
    throw Failure(str("the number ", tree.get<uint64_t>(), " does not fit into 64 bits; give it as text"));
  }
  if (tree.is_number_integer()) return tree.get<int64_t>();
  if (tree.is_number_float()) return tree.get<double>();
  if (tree.is_string()) return tree.get_ref<const std::string&>();
  if (tree.is_array()) {
    std::vector<Value> items;
    items.reserve(tree.size());
    for (const auto& item : tree) items.push_back(value_of(item, depth + 1));
    return Value::list(std::move(items));
  }
  if (tree.is_object()) {
    std::vector<std::pair<Value, Value>> entries;
    entries.reserve(tree.size());
    for (const auto& [key, value] : tree.items()) entries.emplace_back(key, value_of(value, depth + 1));
    return Value::dict(std::move(entries));
  }
  return {};
}

}  // namespace

Value Value::undefined(std::string message) {
  return Undefined{std::make_shared<const std::string>(std::move(message))};
}

Value Value::sequence(std::vector<Value> items, SequenceKind kind) {
  Extent extent;
  for (const Value& item : items) extent.add(item);
  return Value(
      std::make_shared<const Sequence>(Sequence{std::move(items), kind, extent.depth + 1, extent.size, 0, {}}));
}

Value Value::generator(std::vector<Value> items, std::string failure) {
  Extent extent;
  for (const Value& item : items) extent.add(item);
  return Value(std::make_shared<const Sequence>(
      Sequence{std::move(items), SequenceKind::generator, extent.depth + 1, extent.size, 0, std::move(failure)}));
}

Value Value::dict(std::vector<std::pair<Value, Value>> entries) {
  auto dict = std::make_shared<Dict>();
  Extent extent;
  for (auto& [key, value] : entries) {
    if (!is_hashable(key)) throw Failure(str("a ", key.type_name(), " cannot be the key of a dict"));
    extent.add(key);
    extent.add(value);
    if (const Value* known = dict->find(key)) {
      *const_cast<Value*>(known) = std::move(value);
      continue;
    }
    dict->entries.emplace_back(std::move(key), std::move(value));
    const Value& stored = dict->entries.back().first;
    if (stored.is_string()) dict->by_text.emplace(stored.text(), dict->entries.size() - 1);
  }
  dict->depth = extent.depth + 1;
  dict->size = extent.size;
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

Value Value::from_json(const nlohmann::ordered_json& tree) { return value_of(tree, 0); }

bool Value::is_sequence(SequenceKind kind) const { return is_sequence() && items().kind == kind; }

int64_t Value::integer() const { return is_bool() ? int64_t{std::get<bool>(data_)} : std::get<int64_t>(data_); }
double Value::real() const { return is_real() ? std::get<double>(data_) : static_cast<double>(integer()); }

Namespace* Value::name_space() const {
  const auto* found = std::get_if<Namespace*>(&data_);
  return found != nullptr ? *found : nullptr;
}
std::shared_ptr<Loop> Value::loop() const {
  const auto* found = std::get_if<std::shared_ptr<Loop>>(&data_);
  return found != nullptr ? *found : nullptr;
}

void Value::fail_undefined() const { throw Failure(*std::get<Undefined>(data_).message); }

Value Value::as_markup() const {
  Value marked = *this;
  marked.markup_ = is_string();
  return marked;
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_bool() || is_integer()) return integer() != 0;
  if (is_real()) return real() != 0;
  if (is_string()) return !text().empty();
  if (is_dict()) return !entries().entries.empty();
  if (is_sequence()) return items().kind == SequenceKind::generator || !items().items.empty();
  return true;
}

bool Value::has_length() const {
  return is_undefined() || is_string() || is_dict() || (is_sequence() && items().kind != SequenceKind::generator) ||
         loop() != nullptr;
}

int64_t Value::length() const {
  if (!has_length()) throw Failure(str("object of type '", type_name(), "' has no len()"));
  if (is_undefined()) return 0;
  if (is_string()) return static_cast<int64_t>(count_characters(text()));
  if (const auto state = loop()) return static_cast<int64_t>(state->length);
  return static_cast<int64_t>(is_dict() ? entries().entries.size() : items().items.size());
}

bool Value::is_iterable() const { return is_undefined() || is_string() || is_dict() || is_sequence(); }

std::vector<Value> Value::iterate() const {
  if (!is_iterable()) throw Failure(str("'", type_name(), "' object is not iterable"));
  std::vector<Value> all;
  if (is_string()) {
    for (const std::string_view one : characters(text())) all.emplace_back(one);
  } else if (is_dict()) {
    for (const auto& entry : entries().entries) all.push_back(entry.first);
  } else if (is_sequence()) {
    const Sequence& from = items();
    if (from.kind != SequenceKind::generator) return from.items;
    if (!from.failure.empty()) throw Failure(from.failure);
    all.assign(from.items.begin() + static_cast<std::ptrdiff_t>(from.consumed), from.items.end());
    from.consumed = from.items.size();
  }
  return all;
}

size_t Value::depth() const {
  if (is_sequence()) return items().depth;
  if (is_dict()) return entries().depth;
  return is_callable() ? callable().depth : 0;
}

size_t Value::size() const {
  if (is_string()) return kScalarSize + text().size();
  if (is_sequence()) return items().size;
  return is_dict() ? entries().size : kScalarSize;
}

std::string Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_integer()) return "int";
  if (is_real()) return "float";
  if (is_string()) return "str";
  if (is_dict()) return "dict";
  if (is_callable()) return "function";
  if (is_sequence()) return sequence_name(items().kind);
  return name_space() != nullptr ? "Namespace" : "LoopContext";
}

const Value* Dict::find(std::string_view key) const {
  const auto found = by_text.find(key);
  return found == by_text.end() ? nullptr : &entries[found->second].second;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find(std::string_view(key.text()));
  if (by_text.size() == entries.size()) return nullptr;
  for (const auto& [known, value] : entries) {
    if (!known.is_string() && equal(known, key)) return &value;
  }
  return nullptr;
}

}  // namespace lamina::text::jinja
