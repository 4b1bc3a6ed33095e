#pragma once

#include "lamina/serve/api/chat_messages.h"
#include "lamina/serve/api/served_model.h"

namespace lamina::serve {

/// The format that an answer must have (response_format in OpenAI's API).
struct AnswerFormat {
  std::string type = "text";  ///< text, json_object or json_schema
  std::string schema;         ///< JSON text, for json_schema
};

/// Reads the field type of `format` and checks it.
std::string read_format_type(Fields& format);
/// Reads name, description, strict and schema, and returns the schema as text.
std::string read_named_schema(Fields& fields);

/// Constrains the answer of `request` by a token mask: to the format or, if the tools require a call, to a tool call.
/// `param` is the request field that errors name. Throws ApiError.
void constrain_answer(ServedModel& model, const ToolUse& tools, const AnswerFormat& format, const std::string& param,
                      infer::Request& request);

}  // namespace lamina::serve
