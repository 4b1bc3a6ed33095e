// Executes the statements of templates.
#include <algorithm>
#include <utility>

#include "lamina/base/error.h"
#include "lamina/text/template/interpreter.h"
#include "lamina/text/template/scopes.h"

namespace lamina::text::jinja {

std::string Interpreter::run(const Block& block, const Variables& variables) {
  for (const auto& [name, value] : variables) root_.variables.insert_or_assign(name, value);
  // Assignments in the template hide the variables passed to it. Macros see both.
  const Inner scope(*this, &root_);
  run_block(block);
  return std::move(output_);
}

void Interpreter::charge(size_t bytes) {
  work_ += 1 + bytes / 16;
  if (work_ > limits_.max_work) {
    throw Failure(str("the template takes too much work: more than ", limits_.max_work, " steps"));
  }
}

Value Interpreter::text(std::string text) {
  charge(text.size());
  if (text.size() > limits_.max_output) throw Failure(str("a text has more than ", limits_.max_output, " bytes"));
  return text;
}

Value Interpreter::list(std::vector<Value> items) {
  charge(items.size() * sizeof(Value));
  return Value::list(std::move(items));
}
Value Interpreter::generator(std::vector<Value> items) {
  charge(items.size() * sizeof(Value));
  return Value::generator(std::move(items));
}

std::vector<Value> Interpreter::iterate(const Value& value) {
  charge(value.has_length() ? static_cast<size_t>(value.length()) * sizeof(Value) : 0);
  return value.iterate();
}

Namespace* Interpreter::make_namespace() {
  charge(1024);
  return &namespaces_.emplace_back();
}

void Interpreter::write(std::string_view text) {
  charge(text.size());
  if (output_.size() + text.size() > limits_.max_output) {
    throw Failure(str("the output has more than ", limits_.max_output, " bytes"));
  }
  output_ += text;
}

Interpreter::Flow Interpreter::run_block(const Block& block) {
  const Deeper deeper(*this);
  for (const Statement& statement : block) {
    line_ = statement.line;
    charge(0);
    const Flow flow = std::visit([&](const auto& node) { return execute(node); }, statement.node);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

/// The output of a block as text. The block has its own scope.
std::string Interpreter::captured(const Block& block, Scope* parent) {
  std::string outer = std::exchange(output_, {});
  {
    const Inner scope(*this, parent);
    run_block(block);
  }
  return std::exchange(output_, std::move(outer));
}

Interpreter::Flow Interpreter::execute(const Data& node) {
  write(node.text);
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const Print& node) {
  const Value value = evaluate(*node.value);
  charge(value.size());
  write(value.is_string() ? value.text() : to_text(value));
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const If& node) {
  for (const auto& [condition, body] : node.branches) {
    if (evaluate(*condition).truth()) return run_block(body);
  }
  return run_block(node.otherwise);
}

Interpreter::Flow Interpreter::execute(const Set& node) {
  assign(node.target, evaluate(*node.value));
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const SetBlock& node) {
  Value value = text(captured(node.body, scope_));
  if (node.filter != nullptr) {
    block_texts_.push_back(std::move(value));
    value = evaluate(*node.filter);
    block_texts_.pop_back();
  }
  assign(node.target, value);
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const FilterBlock& node) {
  block_texts_.push_back(text(captured(node.body, scope_)));
  const Value value = evaluate(*node.filter);
  block_texts_.pop_back();
  write(to_text(value));
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const With& node) {
  std::vector<Value> values;
  for (const auto& [target, expression] : node.variables) values.push_back(evaluate(*expression));
  const Inner scope(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(node.variables[i].first, values[i]);
  return run_block(node.body);
}

Interpreter::Flow Interpreter::execute(const Generation& node) {
  const Inner scope(*this, scope_);
  return run_block(node.body);
}

Interpreter::Flow Interpreter::execute(const Macro& node) {
  scope_->variables.insert_or_assign(node.name, macro_value(node));
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const CallBlock& node) {
  const Expression& call_node = *node.call;
  const Value callee = evaluate(*call_node.parts[0]);
  Arguments arguments = evaluate_arguments(call_node.arguments);
  arguments.named.emplace_back("caller", macro_value(node.caller));
  write(to_text(call(callee, arguments)));
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const For& node) { return run_loop(node, evaluate(*node.items), scope_, 0); }

/// The items for which the condition of `for … if` is true.
std::vector<Value> Interpreter::selected(const For& node, std::vector<Value> items, Scope* outer) {
  if (node.condition == nullptr) return items;
  std::vector<Value> chosen;
  for (const Value& item : items) {
    const Inner scope(*this, outer);
    assign(node.target, item);
    if (evaluate(*node.condition).truth()) chosen.push_back(item);
  }
  return chosen;
}

Interpreter::Flow Interpreter::run_loop(const For& node, const Value& items, Scope* outer, size_t depth0) {
  const auto loop = std::make_shared<Loop>();
  const EndOfLoop end(*loop);
  charge(sizeof(Loop));
  loop->items = selected(node, iterate(items), outer);
  loop->length = loop->items.size();
  loop->depth0 = depth0;
  loop->outer = outer;
  if (node.recursive) loop->recursive = &node;
  bool completed = false;  // as in jinja2: the else block runs unless the body ran to its end at least once
  for (; loop->index0 < loop->length; ++loop->index0) {
    const Inner scope(*this, outer);
    assign(node.target, loop->items[loop->index0]);
    scope_->variables.insert_or_assign("loop", loop);
    const Flow flow = run_block(node.body);
    if (flow == Flow::leave_loop) break;
    completed = completed || flow == Flow::next;
  }
  if (completed || node.otherwise.empty()) return Flow::next;
  const Inner scope(*this, outer);
  return run_block(node.otherwise);
}

Value Interpreter::call_loop(const std::shared_ptr<Loop>& loop, const Arguments& arguments) {
  if (loop->recursive == nullptr) throw Failure("a loop can be called only if it is marked `recursive` and runs");
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    throw Failure("loop(…) takes one argument: the items of the inner loop");
  }
  const Deeper deeper(*this);
  std::string outer = std::exchange(output_, {});
  run_loop(*loop->recursive, arguments.positional[0], loop->outer, loop->depth0 + 1);
  return text(std::exchange(output_, std::move(outer)));
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    const std::vector<Value> values = iterate(value);
    if (values.size() != target.parts.size()) {
      throw Failure(str(values.size(), " values cannot be assigned to ", target.parts.size(), " variables"));
    }
    for (size_t i = 0; i < values.size(); ++i) assign(target.parts[i], values[i]);
  } else if (target.member.empty()) {
    scope_->variables.insert_or_assign(target.name, value);
  } else {
    Namespace* members = lookup(target.name).name_space();
    if (members == nullptr) {
      throw Failure(str("cannot assign to ", target.name, ".", target.member, ": ", target.name,
                        " is not a namespace; create it with `set ", target.name, " = namespace()`"));
    }
    members->members.insert_or_assign(target.member, value);
  }
}

}  // namespace lamina::text::jinja
