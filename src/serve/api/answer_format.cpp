#include "lamina/serve/api/answer_format.h"

namespace lamina::serve {

std::string read_format_type(Fields& format) {
  std::string type = format.text("type");
  if (type != "text" && type != "json_object" && type != "json_schema") {
    format.fail("type", str("'", type.substr(0, 40), "'; expected text, json_object or json_schema"));
  }
  return type;
}

std::string read_named_schema(Fields& fields) {
  fields.text("name");
  fields.text("description");
  fields.flag("strict", true);
  const Json* value = fields.find("schema");
  if (!value || !value->is_object()) fields.fail("schema", "is missing; expected a JSON schema");
  return dump(*value);
}

void constrain_answer(ServedModel& model, const ToolUse& tools, const AnswerFormat& format, const std::string& param,
                      infer::Request& request) {
  const bool calls = tools.choice == ToolUse::Choice::required;
  if (calls && format.type != "text") {
    throw ApiError(400, str(param, ": cannot be combined with a required tool call"), param);
  }
  const std::string place = calls ? "tools" : param;
  try {
    const std::string schema = calls ? call_schema(tools) : format.schema;
    if (!schema.empty()) {
      request.mask = model.mask("schema:" + schema, [&] { return text::Grammar::json_schema(schema, {}, place); });
    } else if (format.type == "json_object") {
      request.mask = model.mask("json", [] { return text::Grammar::json(); });
    }
  } catch (const ApiError&) {
    throw;
  } catch (const Error& error) {
    throw ApiError(400, error.what(), place);
  }
}

}  // namespace lamina::serve
