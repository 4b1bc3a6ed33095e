#pragma once

#include "lamina/serve/api/fields.h"

namespace lamina::serve {

/// Checks the messages of a conversation and returns them as chat templates expect them: content is a string, the
/// arguments of tool calls are objects, "developer" is "system". Throws ApiError.
Json read_messages(const Json& messages);

/// A function that the model may call.
struct Tool {
  std::string name;
  Json parameters;  ///< JSON schema
};

/// How the answer may use the tools.
struct ToolUse {
  enum class Choice { none, automatic, required };
  Choice choice = Choice::none;
  std::vector<Tool> tools;
  std::string forced;  ///< name of the tool that must be called; empty: any
  Json list;           ///< the tools as the request gave them, for the chat template; null if they are not to be used
};

/// The `name` of a function, checked.
std::string read_function_name(Fields& function);
/// Reads tools, tool_choice and parallel_tool_calls.
ToolUse read_tools(Fields& fields);
/// The JSON schema of a required call: the arguments of the forced tool, or {"name": …, "arguments": …} if any tool may
/// be called.
std::string call_schema(const ToolUse& use);

struct ToolCall {
  std::string name;
  std::string arguments;  ///< JSON text
};
/// The tool calls in an answer, and the text around them. If a call is required, the answer was generated under
/// call_schema() and is read by RequiredCall. Otherwise two forms are recognized: <tool_call>{"name": …, "arguments":
/// …}</tool_call>, and a whole answer that is such an object ("parameters" may replace "arguments"). A call of an
/// unlisted tool stays text.
struct ParsedAnswer {
  std::string text;
  std::vector<ToolCall> calls;
};
ParsedAnswer parse_answer(const std::string& answer, const ToolUse& use);
/// Length of the longest beginning of `text` that cannot be part of a tool call.
size_t plain_prefix(std::string_view text);
/// Text of a streamed answer that can be sent now, after the first `sent` bytes. `whole` is the answer once it has
/// ended, null before: text that may belong to a call is then held back.
std::string fresh_text(std::string_view answer, const ParsedAnswer* whole, const ToolUse& use, size_t& sent);

}  // namespace lamina::serve
