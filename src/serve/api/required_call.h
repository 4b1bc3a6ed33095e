#pragma once

#include <string>
#include <string_view>

namespace lamina::serve {

/// Reads a required tool call while it is generated, so that its arguments can be streamed. The answer is the arguments
/// alone if the tool is forced, and otherwise {"name": …, "arguments": …} under call_schema().
class RequiredCall {
 public:
  /// `forced` is the name of the forced tool; empty: the answer names the tool.
  explicit RequiredCall(std::string forced = "") : forced_(!forced.empty()), name_(std::move(forced)) {}

  /// Reads the next part of the answer. Returns the part of the arguments that it holds, as JSON text.
  std::string push(std::string_view text);
  /// Whether the tool is known: the answer has reached the arguments.
  bool known() const { return forced_ || field_ >= kArguments; }
  /// Name of the tool, complete once it is known.
  const std::string& name() const { return name_; }

 private:
  // Fields of the object, in the order of the schema.
  static constexpr int kName = 1, kArguments = 2;
  void push_byte(char c, std::string& arguments);

  bool forced_;
  std::string name_;
  int field_ = 0;       ///< the field whose value is being read; 0: before the first value
  int depth_ = 0;       ///< of nested objects and lists
  bool value_ = false;  ///< within a field's value, not its key
  bool quoted_ = false, escaped_ = false;
};

}  // namespace lamina::serve
