#pragma once

#include "lamina/serve/api/chat_messages.h"
#include "lamina/serve/api/response_store.h"

namespace lamina::serve {

/// The input of a response of /v1/responses.
struct ResponseInput {
  Json items;     ///< as list_input_items() shows them: each has an id, content is a list of parts
  Json messages;  ///< the same as read_messages() returns it
};
/// Reads the field input and appends it to `earlier`, the items of the conversation so far. Items without an id get
/// one that begins with a prefix of their kind and `id`.
ResponseInput read_response_input(Fields& fields, Json earlier, const std::string& id);
/// The conversation after a stored response: its input and its output.
Json conversation_items(const StoredResponse& stored);
/// A page of a response's input items, selected by the fields limit, order and after of a URL's query.
Json list_input_items(const Json& items, const std::string& query);

/// Reads tools, tool_choice and parallel_tool_calls in the form of /v1/responses.
ToolUse read_response_tools(Fields& fields);

}  // namespace lamina::serve
