#pragma once

#include "lamina/serve/api/chat_messages.h"

namespace lamina::serve {

/// Converts the field `input` of /v1/responses, a string or a list of items, to messages of a chat template. Throws
/// ApiError.
Json read_response_input(Fields& fields);
/// Reads tools, tool_choice and parallel_tool_calls of /v1/responses.
ToolUse read_response_tools(Fields& fields);

}  // namespace lamina::serve
