// Macros: definition, arguments, calls.
#include <algorithm>
#include <utility>

#include "lamina/base/error.h"
#include "lamina/text/template/interpreter.h"
#include "lamina/text/template/scopes.h"

namespace lamina::text::jinja {

Value Interpreter::macro_value(const Macro& macro) {
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) scope->captured = true;
  charge(1024);
  auto callable = std::make_shared<Callable>();
  callable->name = macro.name;
  callable->call = [&macro, scope = scope_](Interpreter& run, const Arguments& arguments) {
    return run.call_macro(macro, scope, arguments);
  };
  return std::shared_ptr<const Callable>(std::move(callable));
}

/// Sets the parameters in the current scope as jinja2 does: positional arguments, then named ones, then defaults. A
/// default may use the parameters before it.
void Interpreter::bind_parameters(const Macro& macro, const Arguments& arguments) {
  auto named = arguments.named;
  const auto take = [&](const std::string& name) -> std::optional<Value> {
    const auto found = std::ranges::find(named, name, [](const auto& entry) { return entry.first; });
    if (found == named.end()) return {};
    Value value = std::move(found->second);
    named.erase(found);
    return value;
  };
  const auto set = [&](std::string_view name, Value value) {
    scope_->variables.insert_or_assign(name, std::move(value));
  };
  bool has_caller = false;
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& [name, fallback] = macro.parameters[i];
    has_caller = has_caller || name == "caller";
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else {
      value = take(name);
    }
    if (!value && fallback != nullptr) value = evaluate(*fallback);
    set(name, value ? *value : Value::undefined(str("parameter '", name, "' was not provided")));
  }
  if (macro.uses_caller && !has_caller) {
    set("caller", take("caller").value_or(Value::undefined("No caller defined")));
  }
  if (macro.uses_kwargs) {
    std::vector<std::pair<Value, Value>> rest;
    for (auto& [name, value] : named) rest.emplace_back(name, value);
    set("kwargs", Value::dict(std::move(rest)));
  } else if (!named.empty()) {
    throw Failure(str("macro '", macro.name, "' takes no keyword argument '", named[0].first, "'"));
  }
  const size_t count = macro.parameters.size();
  if (macro.uses_varargs) {
    std::vector<Value> rest(
        arguments.positional.begin() + static_cast<std::ptrdiff_t>(std::min(count, arguments.positional.size())),
        arguments.positional.end());
    set("varargs", Value::tuple(std::move(rest)));
  } else if (arguments.positional.size() > count) {
    throw Failure(str("macro '", macro.name, "' takes not more than ", count, " argument(s)"));
  }
}

Value Interpreter::call_macro(const Macro& macro, Scope* scope, const Arguments& arguments) {
  const Deeper deeper(*this);
  const size_t line = line_;
  std::string outer = std::exchange(output_, {});
  {
    const Inner inner(*this, scope);
    bind_parameters(macro, arguments);
    run_block(macro.body);
  }
  line_ = line;
  return text(std::exchange(output_, std::move(outer)));
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) callee.fail_undefined();
  if (callee.is_callable()) return callee.callable().call(*this, arguments);
  if (const auto loop = callee.loop()) return call_loop(loop, arguments);
  throw Failure(str("'", callee.type_name(), "' object is not callable"));
}

}  // namespace lamina::text::jinja
