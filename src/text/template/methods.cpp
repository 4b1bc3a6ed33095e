// Methods of lists, tuples and dicts, and the table of all methods.
#include <algorithm>

#include "lamina/base/error.h"
#include "lamina/text/template/arguments.h"
#include "lamina/text/template/interpreter.h"
#include "lamina/text/template/methods.h"

namespace lamina::text::jinja {
namespace {

Value dict_get(Interpreter& run, const Value& self, const Arguments& given) {
  const BoundArguments arguments("get", given, {"key", "default"});
  const Value& key = arguments.value(0);
  if (!key.is_string()) run.charge(self.size());
  const Value* found = self.entries().find(key);
  return found != nullptr ? *found : arguments.value_or(1, {});
}

template <bool keys, bool values>
Value dict_view(Interpreter& run, const Value& self, const Arguments& given) {
  const BoundArguments none("a method of dict", given, {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.entries().entries) {
    items.push_back(keys && values ? Value::tuple({key, value}) : keys ? key : value);
  }
  run.charge(items.size() * sizeof(Value));
  return Value::sequence(std::move(items), SequenceKind::view);
}

Value copy_of(Interpreter& /*run*/, const Value& self, const Arguments& given) {
  const BoundArguments none("copy", given, {});
  return self;  // values are immutable, so no copy is needed
}

Value list_index(Interpreter& run, const Value& self, const Arguments& given) {
  const BoundArguments arguments("index", given, {"value"});
  run.charge(self.size());
  const auto& items = self.items().items;
  const auto found = std::ranges::find_if(items, [&](const Value& one) { return equal(one, arguments.value(0)); });
  if (found == items.end()) throw Failure("index: the value is not in the list");
  return static_cast<int64_t>(found - items.begin());
}

Value list_count(Interpreter& run, const Value& self, const Arguments& given) {
  const BoundArguments arguments("count", given, {"value"});
  run.charge(self.size());
  return static_cast<int64_t>(
      std::ranges::count_if(self.items().items, [&](const Value& one) { return equal(one, arguments.value(0)); }));
}

const MethodTable& dict_methods() {
  static const MethodTable table = {{"get", dict_get},
                                    {"items", dict_view<true, true>},
                                    {"keys", dict_view<true, false>},
                                    {"values", dict_view<false, true>},
                                    {"copy", copy_of}};
  return table;
}

const MethodTable& list_methods() {
  static const MethodTable table = {{"index", list_index}, {"count", list_count}, {"copy", copy_of}};
  return table;
}

/// Methods that change their object. In jinja2's immutable sandbox they are undefined.
bool is_forbidden(const Value& self, std::string_view name) {
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  static constexpr std::string_view kList[] = {"append", "clear", "pop",    "reverse",
                                               "insert", "sort",  "extend", "remove"};
  if (self.is_dict()) return std::ranges::find(kDict, name) != std::end(kDict);
  return self.is_sequence(SequenceKind::list) && std::ranges::find(kList, name) != std::end(kList);
}

const MethodTable* methods_of(const Value& self) {
  if (self.is_string()) return &string_methods();
  if (self.is_dict()) return &dict_methods();
  const bool listed = self.is_sequence(SequenceKind::list) || self.is_sequence(SequenceKind::tuple);
  return listed ? &list_methods() : nullptr;
}

}  // namespace

std::optional<Value> bound_method(const Value& self, const std::string& name) {
  const MethodTable* table = methods_of(self);
  if (table == nullptr) return {};
  const auto found = table->find(name);
  if (found == table->end()) {
    if (is_forbidden(self, name)) {
      return Value::undefined(str("access to attribute '", name, "' of '", self.type_name(),
                                  "' object is unsafe: chat templates cannot change lists and dicts"));
    }
    if (self.is_string() && is_unsupported_string_method(name)) {
      throw Failure(str("the method '", name, "' of str is not supported"));
    }
    return {};
  }
  auto callable = std::make_shared<Callable>();
  callable->name = name;
  callable->depth = self.depth() + 1;
  callable->call = [self, method = found->second](Interpreter& run, const Arguments& arguments) {
    const Value result = method(run, self, arguments);
    return self.is_markup() && result.is_string() ? result.as_markup() : result;
  };
  return Value(std::shared_ptr<const Callable>(std::move(callable)));
}

}  // namespace lamina::text::jinja
