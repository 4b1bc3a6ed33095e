#pragma once

#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lamina/text/template/loop.h"
#include "lamina/text/template/syntax.h"
#include "lamina/text/template/value.h"

namespace lamina::text::jinja {

/// Limits on one rendering. They bound time and memory for any template and any input.
struct Limits {
  size_t max_work = 20'000'000;          ///< evaluated nodes, plus one for every 16 bytes that are created
  size_t max_output = size_t{32} << 20;  ///< in bytes; also for every intermediate text
  size_t max_depth = 1000;               ///< nested evaluations: expressions, blocks, macros that call macros
};

/// Thrown by raise_exception(message) in a template: the template does not accept this conversation.
class Raised : public Failure {
 public:
  using Failure::Failure;
};

/// The variables of a block. A macro keeps the scope in which it was defined.
struct Scope {
  Scope* parent = nullptr;
  std::unordered_map<std::string_view, Value> variables;
  bool captured = false;  ///< a macro may need this scope after the block has ended
};

/// Runs a syntax tree, once.
class Interpreter {
 public:
  using Variables = std::vector<std::pair<std::string, Value>>;
  Interpreter(const Limits& limits, std::tm now) : limits_(limits), now_(now) {}

  std::string run(const Block& block, const Variables& variables);
  size_t line() const { return line_; }  ///< line of the current statement

  // Used by filters, tests and methods.
  void charge(size_t bytes);  ///< adds work; throws Failure beyond the limit
  Value text(std::string text);
  Value list(std::vector<Value> items);
  Value generator(std::vector<Value> items);
  std::vector<Value> iterate(const Value& value);
  Value call(const Value& callee, const Arguments& arguments);
  Value call_filter(const std::string& name, const Value& input, const Arguments& arguments);
  bool call_test(const std::string& name, const Value& input, const Arguments& arguments);
  Value attribute(const Value& object, const std::string& name);  ///< object.name
  Value item(const Value& object, const Value& key);              ///< object[key]
  Value binary(const std::string& symbol, const Value& left, const Value& right);
  Namespace* make_namespace();
  const Limits& limits() const { return limits_; }
  const std::tm& now() const { return now_; }

 private:
  enum class Flow { next, leave_loop, next_iteration };
  class Inner;
  class Deeper;

  // Statements (execute.cpp).
  Flow run_block(const Block& block);
  Flow execute(const Data& node);
  Flow execute(const Print& node);
  Flow execute(const If& node);
  Flow execute(const For& node);
  Flow execute(const Set& node);
  Flow execute(const SetBlock& node);
  Flow execute(const FilterBlock& node);
  Flow execute(const With& node);
  Flow execute(const Macro& node);
  Flow execute(const CallBlock& node);
  Flow execute(const Generation& node);
  Flow execute(const Break&) { return Flow::leave_loop; }
  Flow execute(const Continue&) { return Flow::next_iteration; }
  Flow run_loop(const For& node, const Value& items, Scope* outer, size_t depth0);
  std::vector<Value> selected(const For& node, std::vector<Value> items, Scope* outer);
  std::string captured(const Block& block, Scope* parent);
  void assign(const Target& target, const Value& value);
  void write(std::string_view text);
  Value macro_value(const Macro& macro);
  Value call_macro(const Macro& macro, Scope* scope, const Arguments& arguments);
  void bind_parameters(const Macro& macro, const Arguments& arguments);
  Value call_loop(const std::shared_ptr<Loop>& loop, const Arguments& arguments);

  // Expressions (evaluate.cpp).
  Value evaluate(const Expression& node);
  Value evaluate_node(const Expression& node);
  Value evaluate_dict(const Expression& node);
  Value evaluate_slice(const Expression& node);
  Value evaluate_unary(const Expression& node);
  Value evaluate_concat(const Expression& node);
  Value evaluate_comparison(const Expression& node);
  Value evaluate_conditional(const Expression& node);
  Arguments evaluate_arguments(const ArgumentSyntax& syntax);
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& parts);
  Value lookup(const std::string& name);
  bool holds(const std::string& symbol, const Value& left, const Value& right);

  const Limits limits_;
  const std::tm now_;
  size_t work_ = 0;
  size_t depth_ = 0;
  size_t line_ = 1;
  std::string output_;
  Scope root_;
  Scope* scope_ = &root_;
  std::vector<std::unique_ptr<Scope>> captured_scopes_;
  std::deque<Namespace> namespaces_;
  std::vector<Value> block_texts_;  ///< input texts for the filters of {% filter %} and {% set %} blocks
};

/// The global function with this name, or Undefined.
Value global_function(const std::string& name);
/// The method of a text, list, tuple or dict with this name, bound to `self`. Empty if there is none.
std::optional<Value> bound_method(const Value& self, const std::string& name);
/// text % values, where `values` is a tuple, a dict or a single value.
std::string percent_format(Interpreter& run, std::string_view format, const Value& values);
/// Python's str.format.
std::string brace_format(Interpreter& run, std::string_view format, const Arguments& arguments);

}  // namespace lamina::text::jinja
