#include "lamina/text/template/loop.h"

namespace lamina::text::jinja {

std::optional<Value> Loop::attribute(std::string_view name) const {
  const auto number = [](size_t value) { return Value(static_cast<int64_t>(value)); };
  if (name == "index") return number(index0 + 1);
  if (name == "index0") return number(index0);
  if (name == "revindex") return number(length - index0);
  if (name == "revindex0") return number(length - index0 - 1);
  if (name == "first") return Value(index0 == 0);
  if (name == "last") return Value(index0 + 1 == length);
  if (name == "length") return number(length);
  if (name == "depth") return number(depth0 + 1);
  if (name == "depth0") return number(depth0);
  if (name == "previtem") {
    return index0 == 0 || items.empty() ? Value::undefined("there is no previous item") : items[index0 - 1];
  }
  if (name == "nextitem") {
    return index0 + 1 >= items.size() ? Value::undefined("there is no next item") : items[index0 + 1];
  }
  return {};
}

Value Loop::cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) throw Failure("loop.cycle: no values were given; expected at least one");
  return arguments.positional[index0 % arguments.positional.size()];
}

Value Loop::changed(const Arguments& arguments) {
  Value now = Value::tuple(arguments.positional);
  if (last_changed && equal(*last_changed, now)) return false;
  last_changed = std::move(now);
  return true;
}

}  // namespace lamina::text::jinja
