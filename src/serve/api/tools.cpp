#include <algorithm>
#include <utility>

#include "lamina/base/json.h"
#include "lamina/serve/api/chat_messages.h"
#include "lamina/serve/api/required_call.h"

namespace lamina::serve {
namespace {

constexpr size_t kMaxTools = 128;
constexpr size_t kMaxFunctionName = 128;  ///< as Anthropic's API; OpenAI's takes 64
constexpr std::string_view kCallBegin = "<tool_call>";
constexpr std::string_view kCallEnd = "</tool_call>";

bool is_function_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxFunctionName && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

Tool read_tool(const Json& json, const std::string& path) {
  Fields fields(json, path);
  const std::string type = fields.text("type");
  if (type != "function") fields.fail("type", str("'", type.substr(0, 40), "' is not supported; expected function"));
  const Json* function = fields.find("function");
  if (!function) fields.fail("function", "is missing");
  fields.finish();
  Fields inner(*function, fields.path_of("function"));
  Tool tool;
  tool.name = read_function_name(inner);
  inner.text("description");
  inner.flag("strict", false);
  const Json* parameters = inner.find("parameters");
  tool.parameters = parameters ? *parameters : Json{{"type", "object"}, {"properties", Json::object()}};
  if (!tool.parameters.is_object()) inner.fail("parameters", "expected a JSON schema");
  inner.finish();
  return tool;
}

bool holds_key(const Json& json, std::string_view key) {
  if (json.is_object() && json.contains(key)) return true;
  return json.is_structured() &&
         std::any_of(json.begin(), json.end(), [&](const Json& item) { return holds_key(item, key); });
}

void read_choice(Fields& fields, ToolUse& use) {
  const Json* choice = fields.find("tool_choice");
  if (!choice) {
    use.choice = use.tools.empty() ? ToolUse::Choice::none : ToolUse::Choice::automatic;
    return;
  }
  const std::string name = choice->is_string() ? choice->get<std::string>() : "";
  if (name != "none" && use.tools.empty()) fields.fail("tool_choice", "needs tools");
  if (name == "none") {
    use.choice = ToolUse::Choice::none;
  } else if (name == "auto") {
    use.choice = ToolUse::Choice::automatic;
  } else if (name == "required") {
    use.choice = ToolUse::Choice::required;
  } else if (choice->is_object()) {
    Fields inner(*choice, "tool_choice");
    if (inner.text("type") != "function") inner.fail("type", "expected function");
    const Json* function = inner.find("function");
    if (!function) inner.fail("function", "is missing; expected {\"name\": …}");
    inner.finish();
    Fields named(*function, "tool_choice.function");
    use.forced = named.text("name");
    named.finish();
    use.choice = ToolUse::Choice::required;
    if (std::none_of(use.tools.begin(), use.tools.end(), [&](const Tool& t) { return t.name == use.forced; })) {
      fields.fail("tool_choice", str("'", use.forced.substr(0, 64), "' is not among the tools"));
    }
  } else {
    fields.fail("tool_choice", str(brief(*choice), "; expected none, auto, required or a function"));
  }
}

/// Reads {"name": …, "arguments": …} and appends the call. Returns false if the text does not call a listed tool.
bool read_call(const std::string& text, const ToolUse& use, std::vector<ToolCall>& calls) {
  const auto json = try_parse_json<Json>(text);
  if (!json || !json->is_object() || !json->contains("name") || !(*json)["name"].is_string()) return false;
  const auto name = (*json)["name"].get<std::string>();
  if (std::none_of(use.tools.begin(), use.tools.end(), [&](const Tool& t) { return t.name == name; })) return false;
  const char* key = json->contains("arguments") ? "arguments" : "parameters";
  if (!json->contains(key)) return false;
  const Json& arguments = (*json)[key];
  calls.push_back({name, arguments.is_string() ? arguments.get<std::string>() : dump(arguments)});
  return true;
}

}  // namespace

std::string read_function_name(Fields& function) {
  std::string name = function.text("name");
  if (!is_function_name(name)) {
    function.fail("name", "expected 1 to 128 letters, digits, underscores, dots or hyphens");
  }
  return name;
}

ToolUse read_tools(Fields& fields) {
  ToolUse use;
  fields.flag("parallel_tool_calls", true);
  for (const char* name : {"functions", "function_call"}) {
    fields.refuse(name, "is not supported; use tools and tool_choice");
  }
  const Json* tools = fields.find("tools");
  if (tools) {
    if (!tools->is_array() || tools->size() > kMaxTools) {
      fields.fail("tools", str(brief(*tools), "; expected a list of at most ", kMaxTools, " tools"));
    }
    for (size_t i = 0; i < tools->size(); ++i) use.tools.push_back(read_tool((*tools)[i], str("tools[", i, "]")));
  }
  read_choice(fields, use);
  if (use.choice != ToolUse::Choice::none) use.list = *tools;
  return use;
}

std::string call_schema(const ToolUse& use) {
  Json any = Json::array();
  for (const Tool& tool : use.tools) {
    if (tool.name == use.forced) return dump(tool.parameters);
    if (use.forced.empty() && holds_key(tool.parameters, "$ref")) {
      throw ApiError(400,
                     str("tools: the parameters of ", tool.name,
                         " use $ref, which tool_choice \"required\" does not "
                         "support; name the function in tool_choice"),
                     "tools");
    }
    any.push_back({{"type", "object"},
                   {"properties", {{"name", {{"const", tool.name}}}, {"arguments", tool.parameters}}},
                   {"required", {"name", "arguments"}},
                   {"additionalProperties", false}});
  }
  return dump(any.size() == 1 ? any.front() : Json{{"anyOf", any}});
}

ParsedAnswer parse_answer(const std::string& answer, const ToolUse& use) {
  ParsedAnswer parsed;
  if (use.choice == ToolUse::Choice::required) {
    RequiredCall call(use.forced);
    std::string arguments = call.push(answer);
    if (call.known()) {
      parsed.calls.push_back({call.name(), std::move(arguments)});
    } else {
      parsed.text = answer;  // max_tokens cut the call off before its arguments
    }
    return parsed;
  }
  if (use.choice == ToolUse::Choice::none) return {answer, {}};
  const size_t first = answer.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && answer[first] == '{' && read_call(answer, use, parsed.calls)) return parsed;
  size_t at = 0;
  while (at < answer.size()) {
    const size_t begin = answer.find(kCallBegin, at);
    const size_t end = begin == std::string::npos ? begin : answer.find(kCallEnd, begin);
    if (end == std::string::npos) break;
    const size_t inside = begin + kCallBegin.size();
    parsed.text += answer.substr(at, begin - at);
    at = end + kCallEnd.size();
    if (!read_call(answer.substr(inside, end - inside), use, parsed.calls)) {
      parsed.text += answer.substr(begin, at - begin);
    }
  }
  parsed.text += answer.substr(at);
  if (!parsed.calls.empty() && parsed.text.find_first_not_of(" \t\r\n") == std::string::npos) parsed.text.clear();
  return parsed;
}

size_t plain_prefix(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] == '{') return 0;
  size_t begin = text.find(kCallBegin);
  for (size_t length = std::min(kCallBegin.size() - 1, text.size()); length > 0; --length) {
    if (begin == std::string_view::npos && text.ends_with(kCallBegin.substr(0, length))) begin = text.size() - length;
  }
  if (begin == first) return 0;  // white space alone before a call is dropped
  return std::min(begin, text.size());
}

std::string fresh_text(std::string_view answer, const ParsedAnswer* whole, const ToolUse& use, size_t& sent) {
  if (whole) {
    answer = whole->text;
  } else if (use.choice == ToolUse::Choice::automatic) {
    answer = answer.substr(0, plain_prefix(answer));
  } else if (use.choice == ToolUse::Choice::required) {
    answer = {};
  }
  if (answer.size() <= sent) return {};
  return std::string(answer.substr(std::exchange(sent, answer.size())));
}

}  // namespace lamina::serve
