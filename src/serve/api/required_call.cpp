#include "lamina/serve/api/required_call.h"

namespace lamina::serve {

std::string RequiredCall::push(std::string_view text) {
  if (forced_) return std::string(text);
  std::string arguments;
  for (const char c : text) push_byte(c, arguments);
  return arguments;
}

/// The grammar admits only valid JSON with the listed fields in their order, so it is enough to follow strings and the
/// nesting. Names of tools need no escapes.
void RequiredCall::push_byte(char c, std::string& arguments) {
  const bool space = !quoted_ && (c == ' ' || c == '\n' || c == '\t' || c == '\r');
  if (space && depth_ <= 1) return;
  const bool begins_or_ends_string = c == '"' && !escaped_;
  const bool opens = !quoted_ && (c == '{' || c == '[');
  const bool closes = !quoted_ && (c == '}' || c == ']');
  if (!quoted_ && depth_ == 1 && (c == ':' || c == ',' || closes)) {
    value_ = c == ':';
    if (value_) ++field_;
    if (closes) --depth_;
    return;
  }
  if (depth_ >= 1 && value_ && field_ == kArguments) arguments += c;
  if (depth_ == 1 && value_ && field_ == kName && quoted_ && !begins_or_ends_string) name_ += c;
  if (opens) ++depth_;
  if (closes) --depth_;
  escaped_ = quoted_ && c == '\\' && !escaped_;
  if (begins_or_ends_string) quoted_ = !quoted_;
}

}  // namespace lamina::serve
