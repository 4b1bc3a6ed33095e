#include "lamina/serve/api/response_input.h"

namespace lamina::serve {
namespace {

constexpr size_t kMaxItems = 4096;
constexpr size_t kMaxResponseTools = 128;

/// The text of a message's content: a string, or a list of text parts.
std::string item_text(const Json& content, const std::string& path) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    throw ApiError(400, str(path, ": ", brief(content), "; expected a string or a list of text parts"), path);
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    Fields part(content[i], str(path, "[", i, "]"));
    const std::string type = part.text("type");
    if (type != "input_text" && type != "output_text") {
      part.fail("type", str("'", type.substr(0, 40), "' is not supported; expected input_text or output_text"));
    }
    text += part.text("text");
    part.ignore({"annotations", "logprobs"});
    part.finish();
  }
  return text;
}

void add_message(Fields& item, Json& messages) {
  const std::string role = item.text("role");
  const Json* content = item.find("content");
  if (!content) item.fail("content", "is missing; expected a string or a list of text parts");
  messages.push_back({{"role", role}, {"content", item_text(*content, item.path_of("content"))}});
}

/// Adds a tool call. Consecutive calls go into one assistant message, together with its text if it has one.
void add_call(Fields& item, Json& messages) {
  Json call{{"id", item.text("call_id")},
            {"type", "function"},
            {"function", {{"name", item.text("name")}, {"arguments", item.text("arguments", "{}")}}}};
  if (messages.empty() || messages.back()["role"] != "assistant") {
    messages.push_back({{"role", "assistant"}, {"content", ""}});
  }
  messages.back()["tool_calls"].push_back(std::move(call));
}

void add_item(const Json& json, const std::string& path, Json& messages) {
  Fields item(json, path);
  const std::string type = item.text("type", "message");
  item.ignore({"id", "status"});
  if (type == "message") {
    add_message(item, messages);
  } else if (type == "function_call") {
    add_call(item, messages);
  } else if (type == "function_call_output") {
    const Json* output = item.find("output");
    if (!output) item.fail("output", "is missing; expected a string");
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", item.text("call_id")},
                        {"content", item_text(*output, item.path_of("output"))}});
  } else {
    item.fail("type", str("'", type.substr(0, 40),
                          "' is not supported; expected message, function_call or function_call_output"));
  }
  item.finish();
}

}  // namespace

Json read_response_input(Fields& fields) {
  const Json* input = fields.find("input");
  if (!input) fields.fail("input", "is missing; expected a string or a list of items");
  Json messages = Json::array();
  if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
  } else if (input->is_array() && !input->empty() && input->size() <= kMaxItems) {
    for (size_t i = 0; i < input->size(); ++i) add_item((*input)[i], str("input[", i, "]"), messages);
  } else {
    fields.fail("input", str(brief(*input), "; expected a string or a list of 1 to ", kMaxItems, " items"));
  }
  return read_messages(messages);
}

ToolUse read_response_tools(Fields& fields) {
  Json body = Json::object();
  if (const Json* tools = fields.find("tools")) {
    if (!tools->is_array() || tools->size() > kMaxResponseTools) {
      fields.fail("tools", str(brief(*tools), "; expected a list of at most ", kMaxResponseTools, " tools"));
    }
    if (!tools->empty()) body["tools"] = Json::array();
    for (size_t i = 0; i < tools->size(); ++i) {
      Fields tool((*tools)[i], str("tools[", i, "]"));
      if (tool.text("type") != "function") tool.fail("type", "is not supported; expected function");
      Json function{{"name", tool.text("name")}};
      const std::string about = tool.text("description");
      if (!about.empty()) function["description"] = about;
      tool.flag("strict", true);
      if (const Json* schema = tool.find("parameters")) function["parameters"] = *schema;
      tool.finish();
      body["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  }
  if (const Json* choice = fields.find("tool_choice")) {
    body["tool_choice"] = *choice;
    if (choice->is_object()) {
      Fields inner(*choice, "tool_choice");
      if (inner.text("type") != "function") inner.fail("type", "expected function");
      body["tool_choice"] = {{"type", "function"}, {"function", {{"name", inner.text("name")}}}};
      inner.finish();
    } else if (*choice == Json("auto") && !body.contains("tools")) {
      body.erase("tool_choice");  // clients send tool_choice even without tools
    }
  }
  fields.flag("parallel_tool_calls", true);
  Fields rewritten(body);
  return read_tools(rewritten);
}

}  // namespace lamina::serve
