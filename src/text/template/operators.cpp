// Arithmetic, attributes and items, with Python's rules.
#include <cmath>

#include "lamina/base/error.h"
#include "lamina/text/template/interpreter.h"
#include "lamina/text/template/unicode.h"

namespace lamina::text::jinja {
namespace {

[[noreturn]] void fail_types(const std::string& symbol, const Value& left, const Value& right) {
  throw Failure(
      str("unsupported operand type(s) for ", symbol, ": '", left.type_name(), "' and '", right.type_name(), "'"));
}
[[noreturn]] void fail_overflow() { throw Failure("the result does not fit into 64 bits"); }

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return result;
}

int64_t floor_division(int64_t a, int64_t b) {
  if (a == INT64_MIN && b == -1) fail_overflow();
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value integer_arithmetic(const std::string& symbol, int64_t a, int64_t b) {
  int64_t result = 0;
  if (symbol == "+") {
    if (__builtin_add_overflow(a, b, &result)) fail_overflow();
  } else if (symbol == "-") {
    if (__builtin_sub_overflow(a, b, &result)) fail_overflow();
  } else if (symbol == "*") {
    if (__builtin_mul_overflow(a, b, &result)) fail_overflow();
  } else if (symbol == "**") {
    if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
    result = integer_power(a, b);
  } else {
    if (b == 0) throw Failure("division by zero");
    if (symbol == "/") return static_cast<double>(a) / static_cast<double>(b);
    const int64_t quotient = floor_division(a, b);
    result = symbol == "//" ? quotient : a - quotient * b;
  }
  return result;
}

Value real_arithmetic(const std::string& symbol, double a, double b) {
  if (symbol == "+") return a + b;
  if (symbol == "-") return a - b;
  if (symbol == "*") return a * b;
  if (symbol == "**") return std::pow(a, b);
  if (b == 0) throw Failure("float division by zero");
  if (symbol == "/") return a / b;
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  return symbol == "%" ? remainder : std::floor((a - remainder) / b + 0.5);
}

/// text * count and list * count.
Value repeated(Interpreter& run, const Value& value, int64_t count) {
  const size_t times = count < 0 ? 0 : static_cast<size_t>(count);
  const size_t size = value.is_string() ? value.text().size() : value.items().items.size() * sizeof(Value);
  if (size > 0 && times > run.limits().max_output / size) throw Failure("the product of a sequence is too long");
  run.charge(size * times);
  if (value.is_string()) {
    std::string text;
    for (size_t i = 0; i < times && size > 0; ++i) text += value.text();
    return text;
  }
  std::vector<Value> items;
  for (size_t i = 0; i < times && size > 0; ++i) {
    items.insert(items.end(), value.items().items.begin(), value.items().items.end());
  }
  return Value::sequence(std::move(items), value.items().kind);
}

bool is_list_or_tuple(const Value& value) {
  return value.is_sequence(SequenceKind::list) || value.is_sequence(SequenceKind::tuple);
}

/// The name of an object in jinja2's messages: "None", "dict object".
std::string object_name(const Value& value) { return value.is_none() ? "None" : value.type_name() + " object"; }

Value missing_attribute(const Value& object, const std::string& name) {
  return Value::undefined(str("'", object_name(object), "' has no attribute '", name, "'"));
}

std::optional<Value> own_attribute(const Value& object, const std::string& name) {
  if (const Namespace* members = object.name_space()) {
    const auto found = members->members.find(name);
    return found == members->members.end() ? std::nullopt : std::optional(found->second);
  }
  const auto loop = object.loop();
  if (loop == nullptr) return bound_method(object, name);
  if (name != "cycle" && name != "changed") return loop->attribute(name);
  auto callable = std::make_shared<Callable>();
  callable->name = name;
  // A weak pointer, because the loop may contain the method.
  callable->call = [weak = std::weak_ptr<Loop>(loop), cycles = name == "cycle"](Interpreter&, const Arguments& given) {
    const auto alive = weak.lock();
    if (alive == nullptr) throw Failure("the loop has ended");
    return cycles ? alive->cycle(given) : alive->changed(given);
  };
  return Value(std::shared_ptr<const Callable>(std::move(callable)));
}

/// The element at a Python index, which may be negative. Empty if there is none.
std::optional<Value> element(const Value& object, int64_t index) {
  if (object.is_sequence(SequenceKind::generator) || object.is_sequence(SequenceKind::view)) return {};
  if (!object.is_string() && !object.is_sequence()) return {};
  const int64_t length = object.length();
  if (index < 0) index += length;
  if (index < 0 || index >= length) return {};
  if (object.is_sequence()) return object.items().items[static_cast<size_t>(index)];
  const size_t start = byte_offset(object.text(), static_cast<size_t>(index));
  const std::string_view rest = std::string_view(object.text()).substr(start);
  return Value(rest.substr(0, byte_offset(rest, 1)));
}

}  // namespace

Value Interpreter::binary(const std::string& symbol, const Value& left, const Value& right) {
  if (symbol == "%" && left.is_string()) return text(percent_format(*this, left.text(), right));
  if (left.is_undefined()) left.fail_undefined();
  if (right.is_undefined()) right.fail_undefined();
  if (left.is_number() && right.is_number()) {
    if (left.is_real() || right.is_real()) return real_arithmetic(symbol, left.real(), right.real());
    return integer_arithmetic(symbol, left.integer(), right.integer());
  }
  if (symbol == "+" && left.is_string() && right.is_string()) {
    if (!left.is_markup() && !right.is_markup()) return text(left.text() + right.text());
    const auto escaped = [](const Value& value) {
      return value.is_markup() ? value.text() : escape_html(value.text());
    };
    return text(escaped(left) + escaped(right)).as_markup();
  }
  if (symbol == "+" && left.is_string()) {
    throw Failure(str("can only concatenate str (not \"", right.type_name(), "\") to str; convert it with `| string`"));
  }
  if (symbol == "+" && is_list_or_tuple(left) && right.is_sequence(left.items().kind)) {
    std::vector<Value> items = left.items().items;
    items.insert(items.end(), right.items().items.begin(), right.items().items.end());
    charge(items.size() * sizeof(Value));
    return Value::sequence(std::move(items), left.items().kind);
  }
  if (symbol == "*") {
    const auto repeats = [](const Value& value) { return value.is_string() || is_list_or_tuple(value); };
    const auto counts = [](const Value& value) { return value.is_integer() || value.is_bool(); };
    if (repeats(left) && counts(right)) return repeated(*this, left, right.integer());
    if (counts(left) && repeats(right)) return repeated(*this, right, left.integer());
  }
  fail_types(symbol, left, right);
}

Value Interpreter::attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) object.fail_undefined();
  if (auto own = own_attribute(object, name)) return *std::move(own);
  if (object.is_dict()) {
    if (const Value* value = object.entries().find(std::string_view(name))) return *value;
  }
  return missing_attribute(object, name);
}

Value Interpreter::item(const Value& object, const Value& key) {
  if (object.is_undefined()) object.fail_undefined();
  if (object.is_dict()) {
    if (!key.is_string()) charge(object.size());
    if (const Value* value = object.entries().find(key)) return *value;
  } else if (key.is_integer() || key.is_bool()) {
    if (object.is_string()) charge(object.text().size());
    if (auto found = element(object, key.integer())) return *std::move(found);
  }
  if (!key.is_string()) return Value::undefined(str(object_name(object), " has no element ", repr(key)));
  if (auto own = own_attribute(object, key.text())) return *std::move(own);
  return missing_attribute(object, key.text());
}

}  // namespace lamina::text::jinja
