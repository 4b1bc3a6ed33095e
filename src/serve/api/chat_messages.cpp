#include "lamina/serve/api/chat_messages.h"

#include <algorithm>
#include <array>

#include "lamina/base/json.h"

namespace lamina::serve {
namespace {

constexpr size_t kMaxMessages = 4096;
constexpr std::array<std::string_view, 5> kRoles{"system", "developer", "user", "assistant", "tool"};

/// The text of a message's content: a string, or a list of text parts.
Json read_content(const Json& content, const std::string& path) {
  if (content.is_string() || content.is_null()) return content;
  if (!content.is_array()) {
    throw ApiError(400, str(path, ": ", brief(content), "; expected a string or a list of text parts"), path);
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    Fields part(content[i], str(path, "[", i, "]"));
    const std::string type = part.text("type");
    if (type != "text") part.fail("type", str("'", type.substr(0, 40), "' is not supported; expected text"));
    text += part.text("text");
    part.finish();
  }
  return text;
}

Json read_calls(const Json& calls, const std::string& path) {
  if (!calls.is_array()) throw ApiError(400, str(path, ": ", brief(calls), "; expected a list of tool calls"), path);
  Json result = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    Fields call(calls[i], str(path, "[", i, "]"));
    const std::string id = call.text("id");
    if (call.text("type", "function") != "function") call.fail("type", "expected function");
    const Json* function = call.find("function");
    if (!function) call.fail("function", "is missing; expected an object with name and arguments");
    call.integer("index", 0, 0, 1 << 20);
    call.finish();
    Fields inner(*function, call.path_of("function"));
    const std::string name = inner.text("name");
    if (name.empty()) inner.fail("name", "is missing");
    const Json* given = inner.find("arguments");
    Json arguments = given ? *given : Json::object();
    inner.finish();
    if (arguments.is_string()) {
      const auto parsed = try_parse_json<Json>(arguments.get<std::string>());
      if (!parsed) inner.fail("arguments", "is not valid JSON; send the arguments as the tool call had them");
      arguments = *parsed;
    }
    result.push_back({{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
  }
  return result;
}

Json read_message(const Json& json, const std::string& path) {
  Fields fields(json, path);
  std::string role = fields.text("role");
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    fields.fail("role", str("'", role.substr(0, 40), "'; expected system, developer, user, assistant or tool"));
  }
  if (role == "developer") role = "system";
  Json message{{"role", role}};
  const Json* content = fields.find("content");
  const Json* calls = fields.find("tool_calls");
  if (calls && role != "assistant") fields.fail("tool_calls", str("of a message with role ", role));
  if (!content && !calls) fields.fail("content", "is missing; expected a string or a list of text parts");
  message["content"] = content ? read_content(*content, fields.path_of("content")) : Json("");
  if (calls) message["tool_calls"] = read_calls(*calls, fields.path_of("tool_calls"));
  for (const char* name : {"name", "tool_call_id", "reasoning_content"}) {
    const std::string text = fields.text(name);
    if (!text.empty()) message[name] = text;
  }
  fields.ignore({"refusal", "annotations", "audio", "function_call"});
  for (const char* name : {"audio", "function_call"}) fields.refuse(name, "is not supported");
  fields.finish();
  return message;
}

}  // namespace

Json read_messages(const Json& messages) {
  if (!messages.is_array() || messages.empty() || messages.size() > kMaxMessages) {
    throw ApiError(400, str("messages: ", brief(messages), "; expected a list of 1 to ", kMaxMessages, " messages"),
                   "messages");
  }
  Json result = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) result.push_back(read_message(messages[i], str("messages[", i, "]")));
  return result;
}

}  // namespace lamina::serve
