// Evaluates the expressions of templates.
#include <algorithm>

#include "lamina/base/error.h"
#include "lamina/text/template/interpreter.h"
#include "lamina/text/template/scopes.h"
#include "lamina/text/template/unicode.h"

namespace lamina::text::jinja {
namespace {

/// The indices that Python's slice(start, stop, step) selects from `length` elements. A null bound is a missing one.
std::vector<size_t> slice_indices(int64_t length, const Value& start, const Value& stop, const Value& step) {
  const auto integer_of = [](const Value& value) {
    if (value.is_undefined()) value.fail_undefined();
    if (!value.is_integer() && !value.is_bool()) throw Failure("slice indices must be integers or None");
    return value.integer();
  };
  const int64_t by = step.is_none() ? 1 : integer_of(step);
  if (by == 0) throw Failure("slice step cannot be zero");
  const int64_t low = by > 0 ? 0 : -1;
  const int64_t high = by > 0 ? length : length - 1;
  const auto bound = [&](const Value& value, int64_t fallback) {
    if (value.is_none()) return fallback;
    int64_t index = integer_of(value);
    if (index < 0) index = std::max(index, -length - 1) + length;
    return std::clamp(index, low, high);
  };
  std::vector<size_t> indices;
  const int64_t end = bound(stop, by > 0 ? high : low);
  for (int64_t i = bound(start, by > 0 ? low : high); by > 0 ? i < end : i > end;) {
    indices.push_back(static_cast<size_t>(i));
    if (by >= length || by <= -length) break;
    i += by;
  }
  return indices;
}

}  // namespace

Value Interpreter::evaluate(const Expression& node) {
  const Deeper deeper(*this);
  line_ = node.line;
  charge(0);
  return evaluate_node(node);
}

Value Interpreter::evaluate_node(const Expression& node) {
  switch (node.kind) {
    case ExpressionKind::constant: return node.value;
    case ExpressionKind::name: return lookup(node.name);
    case ExpressionKind::list: return list(evaluate_all(node.parts));
    case ExpressionKind::tuple: return Value::tuple(evaluate_all(node.parts));
    case ExpressionKind::dict: return evaluate_dict(node);
    case ExpressionKind::attribute: return attribute(evaluate(*node.parts[0]), node.name);
    case ExpressionKind::slice: return evaluate_slice(node);
    case ExpressionKind::unary: return evaluate_unary(node);
    case ExpressionKind::concat: return evaluate_concat(node);
    case ExpressionKind::comparison: return evaluate_comparison(node);
    case ExpressionKind::conditional: return evaluate_conditional(node);
    case ExpressionKind::block_text: return block_texts_.back();
    case ExpressionKind::item: {
      const Value object = evaluate(*node.parts[0]);
      return item(object, evaluate(*node.parts[1]));
    }
    case ExpressionKind::call: {
      const Value callee = evaluate(*node.parts[0]);
      const Arguments arguments = evaluate_arguments(node.arguments);
      line_ = node.line;
      return call(callee, arguments);
    }
    case ExpressionKind::filter: {
      const Value input = evaluate(*node.parts[0]);
      const Arguments arguments = evaluate_arguments(node.arguments);
      line_ = node.line;
      return call_filter(node.name, input, arguments);
    }
    case ExpressionKind::test: {
      const Value input = evaluate(*node.parts[0]);
      const Arguments arguments = evaluate_arguments(node.arguments);
      line_ = node.line;
      return call_test(node.name, input, arguments);
    }
    case ExpressionKind::binary: {
      const Value left = evaluate(*node.parts[0]);
      const Value right = evaluate(*node.parts[1]);
      line_ = node.line;
      return binary(node.name, left, right);
    }
    case ExpressionKind::logical_and: {
      Value left = evaluate(*node.parts[0]);
      return left.truth() ? evaluate(*node.parts[1]) : left;
    }
    case ExpressionKind::logical_or: {
      Value left = evaluate(*node.parts[0]);
      return left.truth() ? left : evaluate(*node.parts[1]);
    }
  }
  return {};
}

std::vector<Value> Interpreter::evaluate_all(const std::vector<ExpressionPtr>& parts) {
  std::vector<Value> values;
  values.reserve(parts.size());
  for (const ExpressionPtr& part : parts) values.push_back(evaluate(*part));
  return values;
}

Value Interpreter::evaluate_dict(const Expression& node) {
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i < node.parts.size(); i += 2) {
    Value key = evaluate(*node.parts[i]);
    entries.emplace_back(std::move(key), evaluate(*node.parts[i + 1]));
  }
  return Value::dict(std::move(entries));
}

Value Interpreter::evaluate_slice(const Expression& node) {
  const Value object = evaluate(*node.parts[0]);
  const auto bound = [&](size_t part) { return node.parts[part] == nullptr ? Value() : evaluate(*node.parts[part]); };
  const Value start = bound(1);
  const Value stop = bound(2);
  const Value step = bound(3);
  line_ = node.line;
  if (object.is_undefined()) object.fail_undefined();
  const bool sliceable = object.is_string() || (object.is_sequence() && !object.is_sequence(SequenceKind::generator) &&
                                                !object.is_sequence(SequenceKind::view));
  if (!sliceable) return Value::undefined(str(object.type_name(), " object has no element slice"));
  charge(object.is_string() ? object.text().size() : 0);
  const std::vector<size_t> indices = slice_indices(object.length(), start, stop, step);
  charge(indices.size() * sizeof(Value));
  if (object.is_string()) {
    const std::vector<std::string_view> all = characters(object.text());
    std::string chosen;
    for (const size_t index : indices) chosen += all[index];
    const Value result = text(std::move(chosen));
    return object.is_markup() ? result.as_markup() : result;
  }
  std::vector<Value> chosen;
  for (const size_t index : indices) chosen.push_back(object.items().items[index]);
  return Value::sequence(std::move(chosen), object.items().kind);
}

Value Interpreter::evaluate_unary(const Expression& node) {
  const Value operand = evaluate(*node.parts[0]);
  if (node.name == "not") return !operand.truth();
  if (operand.is_undefined()) operand.fail_undefined();
  if (!operand.is_number()) {
    throw Failure(str("bad operand type for unary ", node.name, ": '", operand.type_name(), "'"));
  }
  if (operand.is_real()) return node.name == "-" ? -operand.real() : operand.real();
  return node.name == "-" ? binary("-", 0, operand) : Value(operand.integer());
}

Value Interpreter::evaluate_concat(const Expression& node) {
  std::string joined;
  for (const ExpressionPtr& part : node.parts) {
    const Value value = evaluate(*part);
    charge(value.size());
    joined += to_text(value);
    if (joined.size() > limits_.max_output) break;
  }
  return text(std::move(joined));
}

bool Interpreter::holds(const std::string& symbol, const Value& left, const Value& right) {
  charge(std::min(left.size(), right.size()));
  if (symbol == "==") return equal(left, right);
  if (symbol == "!=") return !equal(left, right);
  if (symbol == "in" || symbol == "not in") {
    charge(right.size());
    return contains(right, left) == (symbol == "in");
  }
  const bool numbers = left.is_number() && right.is_number();
  if (numbers && (left.real() != left.real() || right.real() != right.real())) return false;  // NaN
  const int order = compare(left, right, symbol);
  if (symbol == "<") return order < 0;
  if (symbol == "<=") return order <= 0;
  return symbol == ">" ? order > 0 : order >= 0;
}

Value Interpreter::evaluate_comparison(const Expression& node) {
  Value left = evaluate(*node.parts[0]);
  for (size_t i = 0; i < node.operators.size(); ++i) {
    Value right = evaluate(*node.parts[i + 1]);
    line_ = node.line;
    if (!holds(node.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate_conditional(const Expression& node) {
  if (evaluate(*node.parts[1]).truth()) return evaluate(*node.parts[0]);
  if (node.parts[2] != nullptr) return evaluate(*node.parts[2]);
  return Value::undefined("the inline if-expression was evaluated to false and no else section was defined");
}

Arguments Interpreter::evaluate_arguments(const ArgumentSyntax& syntax) {
  Arguments arguments;
  arguments.positional = evaluate_all(syntax.positional);
  for (const auto& [name, value] : syntax.named) arguments.named.emplace_back(name, evaluate(*value));
  if (syntax.star != nullptr) {
    for (Value& value : iterate(evaluate(*syntax.star))) arguments.positional.push_back(std::move(value));
  }
  if (syntax.double_star != nullptr) {
    const Value more = evaluate(*syntax.double_star);
    if (!more.is_dict()) throw Failure(str("the value after ** must be a dict, not ", more.type_name()));
    charge(more.size());
    for (const auto& [key, value] : more.entries().entries) arguments.named.emplace_back(to_text(key), value);
  }
  return arguments;
}

Value Interpreter::lookup(const std::string& name) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    const auto found = scope->variables.find(name);
    if (found != scope->variables.end()) return found->second;
  }
  return global_function(name);
}

}  // namespace lamina::text::jinja
