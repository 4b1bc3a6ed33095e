#include "lamina/serve/api/response_input.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "lamina/base/json.h"
#include "lamina/serve/http/request_parts.h"

namespace lamina::serve {
namespace {

constexpr size_t kMaxItems = 4096;
constexpr size_t kMaxResponseTools = 128;
constexpr int64_t kMaxListedItems = 100, kListedItems = 20;  ///< as OpenAI's API

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
  if (role != "system" && role != "developer" && role != "user" && role != "assistant") {
    item.fail("role", str("'", role.substr(0, 40), "'; expected system, developer, user or assistant"));
  }
  const Json* content = item.find("content");
  if (!content) item.fail("content", "is missing; expected a string or a list of text parts");
  messages.push_back({{"role", role}, {"content", item_text(*content, item.path_of("content"))}});
}

/// Adds a tool call. Consecutive calls go into one assistant message, together with its text if it has one.
void add_call(Fields& item, Json& messages) {
  Json call{{"id", item.text("call_id")},
            {"type", "function"},
            {"function", {{"name", read_function_name(item)}, {"arguments", item.text("arguments", "{}")}}}};
  if (!try_parse_json<Json>(item.text("arguments", "{}"))) {
    item.fail("arguments", "is not valid JSON; send the arguments as the function call had them");
  }
  if (messages.empty() || messages.back()["role"] != "assistant") {
    messages.push_back({{"role", "assistant"}, {"content", ""}});
  }
  messages.back()["tool_calls"].push_back(std::move(call));
}

void add_item(const Json& json, const std::string& path, Json& messages) {
  Fields item(json, path);
  const std::string type = item.text("type", "message");
  item.text("id");
  item.text("status");
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

/// An item that add_item() has accepted, in the form in which it is listed.
Json listed_item(const Json& item, const std::string& id) {
  Fields fields(item);
  const std::string type = fields.text("type", "message");
  const char* prefix = type == "message" ? "msg" : type == "function_call" ? "fc" : "fco";
  Json listed{{"type", type}, {"id", fields.text("id", str(prefix, "_", id))}, {"status", "completed"}};
  for (const char* name : {"role", "call_id", "name", "arguments", "output"}) {
    if (const Json* value = fields.find(name)) listed[name] = *value;
  }
  if (type != "message") return listed;
  listed["content"] = item["content"];
  if (!item["content"].is_string()) return listed;
  const bool answer = item["role"] == Json("assistant");
  Json part{{"type", answer ? "output_text" : "input_text"}, {"text", item["content"]}};
  if (answer) part["annotations"] = Json::array();
  listed["content"] = Json::array({std::move(part)});
  return listed;
}

/// The fields of the query of a list.
struct Page {
  int64_t limit = kListedItems;
  bool ascending = false;
  std::string after;
};

Page read_page(const std::string& query) {
  Page page;
  for (const auto& [name, value] : query_fields(query)) {
    const auto refuse = [&, &name = name, &value = value](const std::string& expected) {
      throw ApiError(400, str(name.substr(0, 64), ": '", value.substr(0, 64), "'; ", expected), name.substr(0, 64));
    };
    if (name == "limit") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), page.limit);
      const bool whole = error == std::errc() && end == value.data() + value.size();
      if (!whole || page.limit < 1 || page.limit > kMaxListedItems) {
        refuse(str("expected a whole number from 1 to ", kMaxListedItems));
      }
    } else if (name == "order") {
      if (value != "asc" && value != "desc") refuse("expected asc or desc");
      page.ascending = value == "asc";
    } else if (name == "after") {
      page.after = value;
    } else if (name != "include") {  // there is nothing more to include
      refuse("unknown field; expected limit, order, after or include");
    }
  }
  return page;
}

}  // namespace

ResponseInput read_response_input(Fields& fields, Json earlier, const std::string& id) {
  const Json* input = fields.find("input");
  if (!input) fields.fail("input", "is missing; expected a string or a list of items");
  Json given = *input;
  if (given.is_string()) given = Json::array({Json{{"role", "user"}, {"content", *input}}});
  if (!given.is_array() || given.empty() || given.size() > kMaxItems) {
    fields.fail("input", str(brief(given), "; expected a string or a list of 1 to ", kMaxItems, " items"));
  }
  if (earlier.size() + given.size() > kMaxItems) {
    fields.fail("input", str("the conversation has ", earlier.size() + given.size(),
                             " items with it; expected at most ", kMaxItems));
  }
  Json messages = Json::array();
  for (const Json& item : earlier) add_item(item, "previous_response_id", messages);
  for (size_t i = 0; i < given.size(); ++i) {
    add_item(given[i], str("input[", i, "]"), messages);
    earlier.push_back(listed_item(given[i], str(id, "_in_", i)));
  }
  return {std::move(earlier), read_messages(messages)};
}

Json conversation_items(const StoredResponse& stored) {
  Json items = stored.items;
  for (Json item : stored.response["output"]) {
    if (item.contains("content")) {
      for (Json& part : item["content"]) part["logprobs"] = Json::array();
    }
    // max_output_tokens may have cut the arguments off.
    if (item.contains("arguments") && !try_parse_json<Json>(item["arguments"].get<std::string>())) {
      item["arguments"] = "{}";
    }
    items.push_back(std::move(item));
  }
  return items;
}

Json list_input_items(const Json& items, const std::string& query) {
  const Page page = read_page(query);
  std::vector<const Json*> sorted;
  for (const Json& item : items) sorted.push_back(&item);
  if (!page.ascending) std::reverse(sorted.begin(), sorted.end());
  auto first = sorted.begin();
  if (!page.after.empty()) {
    first = std::find_if(first, sorted.end(), [&](const Json* item) { return (*item)["id"] == Json(page.after); });
    if (first == sorted.end()) {
      throw ApiError(400, str("after: '", page.after.substr(0, 80), "' is not an item of this response"), "after");
    }
    ++first;
  }
  const auto last = first + std::min<std::ptrdiff_t>(sorted.end() - first, page.limit);
  Json data = Json::array();
  for (auto item = first; item != last; ++item) data.push_back(**item);
  const Json first_id = data.empty() ? Json(nullptr) : data.front()["id"];
  const Json last_id = data.empty() ? Json(nullptr) : data.back()["id"];
  return {{"object", "list"},
          {"data", std::move(data)},
          {"first_id", first_id},
          {"last_id", last_id},
          {"has_more", last != sorted.end()}};
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
      Json function{{"name", read_function_name(tool)}};
      const std::string about = tool.text("description");
      if (!about.empty()) function["description"] = about;
      tool.flag("strict", true);
      const Json* schema = tool.find("parameters");
      if (schema && !schema->is_object()) tool.fail("parameters", "expected a JSON schema");
      if (schema) function["parameters"] = *schema;
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
