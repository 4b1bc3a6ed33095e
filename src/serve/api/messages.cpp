#include "lamina/serve/api/messages.h"

#include <algorithm>
#include <random>

#include "lamina/base/json.h"
#include "lamina/serve/api/answer_format.h"
#include "lamina/serve/api/chat.h"
#include "lamina/serve/api/chat_messages.h"
#include "lamina/serve/api/request_fields.h"
#include "lamina/serve/api/required_call.h"

namespace lamina::serve {
namespace {

constexpr size_t kMaxTurns = 4096;
constexpr size_t kMaxListedTools = 128;

/// The text of a message's content: a string, or a list of text blocks.
std::string text_of(const Json& content, const std::string& path) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) throw ApiError(400, str(path, ": expected a string or a list of text blocks"), path);
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    Fields block(content[i], str(path, "[", i, "]"));
    if (block.text("type") != "text") block.fail("type", "is not supported; expected text");
    text += block.text("text");
    block.ignore({"cache_control", "citations"});
    block.finish();
  }
  return text;
}

/// Appends one turn as messages of a chat template. Tool results become messages with role "tool".
void add_turn(const Json& turn, const std::string& path, Json& messages) {
  Fields fields(turn, path);
  const std::string role = fields.text("role");
  if (role != "user" && role != "assistant") fields.fail("role", "expected user or assistant");
  const Json* content = fields.find("content");
  if (!content) fields.fail("content", "is missing");
  fields.finish();
  const std::string place = fields.path_of("content");
  if (content->is_string()) {
    messages.push_back({{"role", role}, {"content", *content}});
    return;
  }
  if (!content->is_array()) fields.fail("content", "expected a string or a list of blocks");
  std::string text;
  Json calls = Json::array();
  for (size_t i = 0; i < content->size(); ++i) {
    Fields block((*content)[i], str(place, "[", i, "]"));
    const std::string type = block.text("type");
    block.ignore({"cache_control", "citations"});
    if (type == "text") {
      text += block.text("text");
    } else if (type == "tool_use" && role == "assistant") {
      const Json* input = block.find("input");
      if (input && !input->is_object()) block.fail("input", str(brief(*input), "; expected an object"));
      calls.push_back(
          {{"id", block.text("id")},
           {"type", "function"},
           {"function", {{"name", read_function_name(block)}, {"arguments", input ? *input : Json::object()}}}});
    } else if (type == "tool_result" && role == "user") {
      const Json* result = block.find("content");
      block.flag("is_error", false);
      messages.push_back({{"role", "tool"},
                          {"tool_call_id", block.text("tool_use_id")},
                          {"content", result ? text_of(*result, block.path_of("content")) : ""}});
    } else {
      block.fail("type", str("'", type.substr(0, 40), "' is not supported in a message of role ", role));
    }
    block.finish();
  }
  if (text.empty() && calls.empty()) return;  // the turn holds only tool results
  messages.push_back({{"role", role}, {"content", text}});
  if (!calls.empty()) messages.back()["tool_calls"] = std::move(calls);
}

Json read_turns(Fields& fields) {
  Json messages = Json::array();
  if (const Json* system = fields.find("system")) {
    messages.push_back({{"role", "system"}, {"content", text_of(*system, "system")}});
  }
  const Json* turns = fields.find("messages");
  if (!turns || !turns->is_array() || turns->empty() || turns->size() > kMaxTurns) {
    fields.fail("messages", str("expected a list of 1 to ", kMaxTurns, " messages"));
  }
  for (size_t i = 0; i < turns->size(); ++i) add_turn((*turns)[i], str("messages[", i, "]"), messages);
  if (!messages.empty() && messages.back()["role"] == Json("assistant")) {
    fields.fail("messages",
                "the last message has role assistant; continuing it is not supported, end with a user message");
  }
  return messages;
}

/// Reads tools and tool_choice by converting them to OpenAI's form.
ToolUse read_message_tools(Fields& fields) {
  Json body = Json::object();
  if (const Json* tools = fields.find("tools")) {
    if (!tools->is_array() || tools->size() > kMaxListedTools) {
      fields.fail("tools", str("expected a list of at most ", kMaxListedTools, " tools"));
    }
    body["tools"] = Json::array();
    for (size_t i = 0; i < tools->size(); ++i) {
      Fields tool((*tools)[i], str("tools[", i, "]"));
      if (tool.text("type", "custom") != "custom") tool.fail("type", "is not supported; expected custom");
      Json function{{"name", read_function_name(tool)}, {"description", tool.text("description")}};
      const Json* schema = tool.find("input_schema");
      if (schema && !schema->is_object()) tool.fail("input_schema", "expected a JSON schema");
      if (schema) function["parameters"] = *schema;
      tool.flag("strict", false);
      tool.flag("eager_input_streaming", true);
      tool.ignore({"cache_control"});
      tool.finish();
      body["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  }
  if (const Json* choice = fields.find("tool_choice")) {
    Fields inner(*choice, "tool_choice");
    const std::string type = inner.text("type");
    const std::string name = inner.text("name");
    inner.flag("disable_parallel_tool_use", false);
    inner.finish();
    if (type == "tool") {
      body["tool_choice"] = {{"type", "function"}, {"function", {{"name", name}}}};
    } else if (type == "auto" || type == "none" || type == "any") {
      body["tool_choice"] = type == "any" ? "required" : type;
    } else {
      inner.fail("type", str("'", type.substr(0, 40), "'; expected auto, any, tool or none"));
    }
  }
  Fields rewritten(body);
  return read_tools(rewritten);
}

std::vector<text::TokenId> message_prompt(Fields& fields, const ServedModel& model, ToolUse& tools) {
  const Json messages = read_turns(fields);
  tools = read_message_tools(fields);
  auto prompt = encode_chat(model, render_chat(model, messages, tools.list, nullptr, true));
  if (prompt.empty()) fields.fail("messages", "the rendered conversation is empty");
  return prompt;
}

/// The format of the answer in output_config.
AnswerFormat read_output_config(Fields& fields) {
  AnswerFormat answer;
  const Json* config = fields.find("output_config");
  if (!config) return answer;
  Fields outer(*config, "output_config");
  outer.refuse("effort", "is not supported; leave it out");
  const Json* format = outer.find("format");
  outer.finish();
  if (!format) return answer;
  Fields inner(*format, "output_config.format");
  answer.type = inner.text("type");
  if (answer.type != "json_schema") inner.fail("type", str("'", answer.type.substr(0, 40), "'; expected json_schema"));
  answer.schema = read_named_schema(inner);
  inner.finish();
  return answer;
}

class MessageJob final : public AnswerJob {
 public:
  using AnswerJob::AnswerJob;
  void read(const Json& body);

 protected:
  void stream_start() override;
  void stream_update(int64_t index, const infer::Update& update) override;
  void stream_end() override { write_named("message_stop", Json::object()); }
  std::string error_event(const std::string& body) const override { return "event: error\ndata: " + body + "\n\n"; }
  Json body() override;

 private:
  void write_named(const std::string& type, Json data) {
    Json event{{"type", type}};
    event.update(data);
    exchange->write("event: " + type + "\ndata: " + dump(event) + "\n\n");
  }
  void open_block(Json begin);
  void write_delta(Json delta);
  void close_block();
  std::string fresh_arguments(const infer::Update& update);
  Json call_begin(const std::string& name, size_t call) const {
    return {{"type", "tool_use"}, {"id", call_id(call)}, {"name", name}, {"input", Json::object()}};
  }
  Json message_usage() const {
    return {{"input_tokens", prompt_tokens - cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", cached_tokens},
            {"output_tokens", answer_tokens}};
  }
  Json stop_fields(bool calls) const;
  std::string call_id(size_t call) const { return str("toolu_", id, "_", call); }

  ToolUse tools_;
  RequiredCall call_;  ///< if the tools require a call
  std::vector<std::string> stops_;
  size_t sent_ = 0;
  bool block_open_ = false;
  int64_t block_ = 0;
};

void MessageJob::read(const Json& json) {
  Fields fields(json);
  fields.find("model");
  prompts.push_back(message_prompt(fields, *model, tools_));
  if (!fields.has("max_tokens")) fields.fail("max_tokens", "is missing");
  // Clients ask for limits of large models, beyond this model's context. Such a limit is reduced, not rejected.
  request.max_tokens = std::min(fields.integer("max_tokens", 1, 1, int64_t{1} << 24), model->backend->shape().context);
  request.sampler.temperature = fields.number("temperature", 1, 0, 1);
  request.sampler.top_p = std::max(1e-9, fields.number("top_p", 1, 0, 1));
  request.sampler.top_k = fields.integer("top_k", 0, 0, model->backend->shape().vocab_size);
  std::random_device random;
  request.sampler.seed = (uint64_t{random()} << 32) ^ random();
  stops_ = read_stops(fields, "stop_sequences");
  request.stop_strings = stops_;
  for (const std::string& stop : model->chat_template->stop_strings()) request.stop_strings.push_back(stop);
  request.stop_tokens = model->stop_tokens;
  request.text = true;
  stream = fields.flag("stream", false);
  request.cache_salt = fields.text("cache_salt");
  fields.ignore({"metadata", "service_tier", "cache_control"});
  const AnswerFormat format = read_output_config(fields);
  const Json* thinking = fields.find("thinking");
  if (thinking && *thinking != Json{{"type", "disabled"}}) fields.fail("thinking", "is not supported");
  fields.finish();
  constrain_answer(*model, tools_, format, "output_config.format", request);
  call_ = RequiredCall(tools_.forced);
}

Json MessageJob::stop_fields(bool calls) const {
  const infer::Finish finish = *choices.front().finish;
  Json stop{{"stop_reason", "end_turn"}, {"stop_sequence", nullptr}};
  if (finish_name(finish) == "length") {
    stop["stop_reason"] = "max_tokens";
  } else if (calls) {
    stop["stop_reason"] = "tool_use";
  } else if (std::find(stops_.begin(), stops_.end(), choices.front().stop) != stops_.end()) {
    stop["stop_reason"] = "stop_sequence";  // not a stop string of the chat template
    stop["stop_sequence"] = choices.front().stop;
  }
  return stop;
}

void MessageJob::stream_start() {
  write_named("message_start", {{"message",
                                 {{"id", "msg_" + id},
                                  {"type", "message"},
                                  {"role", "assistant"},
                                  {"model", model->id},
                                  {"content", Json::array()},
                                  {"stop_reason", nullptr},
                                  {"stop_sequence", nullptr},
                                  {"usage", message_usage()}}}});
  if (!tools_.forced.empty()) open_block(call_begin(tools_.forced, 0));
}

void MessageJob::open_block(Json begin) {
  write_named("content_block_start", {{"index", block_}, {"content_block", std::move(begin)}});
  block_open_ = true;
}

void MessageJob::write_delta(Json delta) {
  write_named("content_block_delta", {{"index", block_}, {"delta", std::move(delta)}});
}

void MessageJob::close_block() {
  write_named("content_block_stop", {{"index", block_++}});
  block_open_ = false;
}

/// The next part of the arguments of a required call. Opens the block of the call once its name is known.
std::string MessageJob::fresh_arguments(const infer::Update& update) {
  std::string arguments = call_.push(update.text);
  if (call_.known() && !block_open_) open_block(call_begin(call_.name(), 0));
  return arguments;
}

void MessageJob::stream_update(int64_t /*index*/, const infer::Update& update) {
  ParsedAnswer parsed;
  if (update.finish) parsed = parse_answer(choices.front().text, tools_);
  const bool required = tools_.choice == ToolUse::Choice::required;
  const std::string arguments = required ? fresh_arguments(update) : "";
  if (!arguments.empty()) write_delta({{"type", "input_json_delta"}, {"partial_json", arguments}});
  const std::string text = fresh_text(choices.front().text, update.finish ? &parsed : nullptr, tools_, sent_);
  if (!text.empty()) {
    if (!block_open_) open_block({{"type", "text"}, {"text", ""}});
    write_delta({{"type", "text_delta"}, {"text", text}});
  }
  if (!update.finish) return;
  if (block_open_) close_block();
  for (size_t i = 0; i < parsed.calls.size() && !required; ++i) {
    open_block(call_begin(parsed.calls[i].name, i));
    write_delta({{"type", "input_json_delta"}, {"partial_json", parsed.calls[i].arguments}});
    close_block();
  }
  write_named("message_delta", {{"delta", stop_fields(!parsed.calls.empty())}, {"usage", message_usage()}});
}

Json MessageJob::body() {
  const ParsedAnswer parsed = parse_answer(choices.front().text, tools_);
  Json content = Json::array();
  if (!parsed.text.empty()) content.push_back({{"type", "text"}, {"text", parsed.text}});
  for (size_t i = 0; i < parsed.calls.size(); ++i) {
    const auto input = try_parse_json<Json>(parsed.calls[i].arguments);  // empty if max_tokens cut the call off
    content.push_back({{"type", "tool_use"},
                       {"id", call_id(i)},
                       {"name", parsed.calls[i].name},
                       {"input", input && input->is_object() ? *input : Json::object()}});
  }
  Json json{
      {"id", "msg_" + id}, {"type", "message"}, {"role", "assistant"}, {"model", model->id}, {"content", content}};
  json.update(stop_fields(!parsed.calls.empty()));
  json["usage"] = message_usage();
  return json;
}

}  // namespace

void run_messages(const Json& body, const std::shared_ptr<Exchange>& exchange,
                  const std::shared_ptr<ServedModel>& model, Metrics& metrics) {
  auto job = std::make_shared<MessageJob>(exchange, model, metrics);
  job->read(body);
  job->submit("messages");
}

int64_t count_message_tokens(const Json& body, const ServedModel& model) {
  Fields fields(body);
  fields.find("model");
  ToolUse tools;
  const auto prompt = message_prompt(fields, model, tools);
  fields.ignore({"thinking", "cache_control", "output_config"});
  fields.finish();
  return static_cast<int64_t>(prompt.size());
}

}  // namespace lamina::serve
