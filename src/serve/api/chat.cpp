#include "lamina/serve/api/chat.h"

#include <utility>

#include "lamina/serve/api/answer_format.h"
#include "lamina/serve/api/chat_messages.h"
#include "lamina/serve/api/request_fields.h"
#include "lamina/serve/api/required_call.h"

namespace lamina::serve {
namespace {

constexpr int64_t kMaxTopLogprobs = 20;

class ChatJob final : public AnswerJob {
 public:
  using AnswerJob::AnswerJob;
  void read(const Json& body);

 protected:
  void stream_start() override;
  void stream_update(int64_t index, const infer::Update& update) override;
  Json usage_chunk() const override;
  Json chunk_head() const override { return head("chat.completion.chunk"); }
  Json body() override;

 private:
  /// State of a choice that is being streamed.
  struct Streamed {
    size_t sent = 0;  ///< bytes of the text sent so far
    std::optional<text::TokenId> last;
    RequiredCall call;         ///< if the tools require a call
    bool call_opened = false;  ///< its name was sent
  };

  void read_conversation(Fields& fields);
  void read_amounts(Fields& fields);
  void read_response_format(Fields& fields);
  void write_delta(int64_t index, Json delta, Json logprobs, Json finish, const Json& token_ids);
  bool requires_call() const { return tools_.choice == ToolUse::Choice::required; }
  Json call_delta(int64_t index, const std::string& arguments);
  void stream_required_call(int64_t index, const infer::Update& update, Json logprobs, const Json& ids);
  Json calls_json(const std::vector<ToolCall>& calls, int64_t index, bool with_index) const;
  std::string_view finish_reason(const Choice& choice, bool calls) const;
  Json head(const char* object) const {
    return {{"id", "chatcmpl-" + id},
            {"object", object},
            {"created", created},
            {"model", model->id},
            {"system_fingerprint", model->fingerprint}};
  }

  ToolUse tools_;
  bool logprobs_ = false;
  bool return_ids_ = false;
  std::vector<Streamed> streamed_;
};

void ChatJob::read_conversation(Fields& fields) {
  const Json* messages = fields.find("messages");
  if (!messages) fields.fail("messages", "is missing; expected a list of messages");
  const Json conversation = read_messages(*messages);
  const Json* kwargs = fields.find("chat_template_kwargs");
  if (kwargs && !kwargs->is_object()) fields.fail("chat_template_kwargs", "expected an object");
  tools_ = read_tools(fields);
  const std::string text = render_chat(*model, conversation, tools_.list, kwargs ? *kwargs : Json(nullptr), true);
  prompts.push_back(encode_chat(*model, text));
  if (prompts.back().empty()) fields.fail("messages", "the rendered conversation is empty");
}

void ChatJob::read_amounts(Fields& fields) {
  const int64_t context = model->backend->shape().context;
  const int64_t room = std::max<int64_t>(1, context - static_cast<int64_t>(prompts.front().size()));
  const int64_t old_name = fields.integer("max_tokens", room, 1, context);
  request.max_tokens = fields.integer("max_completion_tokens", old_name, 1, context);
  request.min_tokens = fields.integer("min_tokens", 0, 0, request.max_tokens);
  logprobs_ = fields.flag("logprobs", false);
  const int64_t top = fields.integer("top_logprobs", 0, 0, kMaxTopLogprobs);
  if (fields.has("top_logprobs") && !logprobs_) fields.fail("top_logprobs", "needs \"logprobs\": true");
  if (logprobs_) request.logprobs = top;
  return_ids_ = fields.flag("return_token_ids", false);
  request.prompt_logprobs = fields.integer("prompt_logprobs", -1, 0, kMaxTopLogprobs);
  const Json* modalities = fields.find("modalities");
  if (modalities && *modalities != Json::array({"text"})) fields.fail("modalities", "expected [\"text\"]");
  for (const char* name :
       {"audio", "prediction", "web_search_options", "verbosity", "reasoning_effort", "moderation"}) {
    fields.refuse(name, "is not supported; leave it out");
  }
}

void ChatJob::read_response_format(Fields& fields) {
  AnswerFormat answer;
  if (const Json* format = fields.find("response_format")) {
    Fields inner(*format, "response_format");
    answer.type = read_format_type(inner);
    const Json* outer = inner.find("json_schema");
    if (answer.type == "json_schema") {
      if (!outer) inner.fail("json_schema", "is missing");
      Fields named(*outer, "response_format.json_schema");
      answer.schema = read_named_schema(named);
      named.finish();
    }
    inner.finish();
  }
  constrain_answer(*model, tools_, answer, "response_format", request);
}

void ChatJob::read(const Json& json) {
  Fields fields(json);
  fields.find("model");
  read_conversation(fields);
  read_sampling(fields, *model, request);
  read_amounts(fields);
  read_stream_fields(fields);
  read_response_format(fields);
  fields.finish();
  for (const std::string& stop : model->chat_template->stop_strings()) request.stop_strings.push_back(stop);
  if (stream && request.prompt_logprobs >= 0) {
    fields.fail("prompt_logprobs", "is not available in a stream; set stream to false");
  }
  keeps_tokens = !stream && (logprobs_ || return_ids_);
  usage_in_chunks = include_usage;
  streamed_.assign(static_cast<size_t>(request.n), {0, prompts.front().back(), RequiredCall(tools_.forced)});
}

void ChatJob::write_delta(int64_t index, Json delta, Json logprobs, Json finish, const Json& token_ids) {
  Json choice{{"index", index},
              {"delta", std::move(delta)},
              {"logprobs", std::move(logprobs)},
              {"finish_reason", std::move(finish)}};
  if (!token_ids.is_null()) choice["token_ids"] = token_ids;
  begin_choice() += dump(choice);
  end_choice();
}

void ChatJob::stream_start() {
  for (int64_t i = 0; i < request.n; ++i) {
    write_delta(i, {{"role", "assistant"}, {"content", requires_call() ? Json(nullptr) : Json("")}}, nullptr, nullptr,
                nullptr);
    if (!tools_.forced.empty()) write_delta(i, call_delta(i, ""), nullptr, nullptr, nullptr);
  }
}

void ChatJob::stream_update(int64_t index, const infer::Update& update) {
  const Choice& choice = choices[static_cast<size_t>(index)];
  Streamed& streamed = streamed_[static_cast<size_t>(index)];
  Json logprobs = nullptr;
  if (logprobs_ && !update.tokens.empty()) logprobs = chat_logprobs(*model, streamed.last, update.tokens, return_ids_);
  if (!update.tokens.empty()) streamed.last = update.tokens.back().id;
  const Json ids = return_ids_ ? ids_of(update.tokens) : Json(nullptr);
  if (requires_call()) return stream_required_call(index, update, std::move(logprobs), ids);
  ParsedAnswer parsed;
  if (update.finish) parsed = parse_answer(choice.text, tools_);
  const std::string text = fresh_text(choice.text, update.finish ? &parsed : nullptr, tools_, streamed.sent);
  if (!text.empty() && logprobs.is_null() && !return_ids_) {  // common case: no JSON tree
    std::string& event = begin_choice();
    event.append("{\"index\":").append(std::to_string(index)).append(",\"delta\":{\"content\":");
    append_quoted(event, text);
    event += "},\"logprobs\":null,\"finish_reason\":null}";
    end_choice();
  } else if (!text.empty() || !logprobs.is_null() || (return_ids_ && !update.tokens.empty())) {
    write_delta(index, {{"content", text}}, std::move(logprobs), nullptr, ids);
  }
  if (!update.finish) return;
  if (!parsed.calls.empty()) {
    write_delta(index, {{"tool_calls", calls_json(parsed.calls, index, true)}}, nullptr, nullptr, nullptr);
  }
  write_delta(index, Json::object(), nullptr, finish_reason(choice, !parsed.calls.empty()), nullptr);
}

/// The next part of the arguments of a required call; the first one also has the call's id and name.
Json ChatJob::call_delta(int64_t index, const std::string& arguments) {
  Streamed& streamed = streamed_[static_cast<size_t>(index)];
  if (!std::exchange(streamed.call_opened, true)) {
    return {{"tool_calls", calls_json({ToolCall{streamed.call.name(), arguments}}, index, true)}};
  }
  return {{"tool_calls", Json::array({Json{{"index", 0}, {"function", {{"arguments", arguments}}}}})}};
}

/// Streams the arguments of a call as they are generated.
void ChatJob::stream_required_call(int64_t index, const infer::Update& update, Json logprobs, const Json& ids) {
  Streamed& streamed = streamed_[static_cast<size_t>(index)];
  const std::string arguments = streamed.call.push(update.text);
  const bool opens = streamed.call.known() && !streamed.call_opened;
  if (opens || !arguments.empty() || !logprobs.is_null() || (return_ids_ && !update.tokens.empty())) {
    write_delta(index, streamed.call.known() ? call_delta(index, arguments) : Json::object(), std::move(logprobs),
                nullptr, ids);
  }
  if (!update.finish) return;
  const Choice& choice = choices[static_cast<size_t>(index)];
  const bool cut = !streamed.call.known();  // max_tokens ended the answer before the arguments
  if (cut && !choice.text.empty()) write_delta(index, {{"content", choice.text}}, nullptr, nullptr, nullptr);
  write_delta(index, Json::object(), nullptr, finish_reason(choice, !cut), nullptr);
}

Json ChatJob::calls_json(const std::vector<ToolCall>& calls, int64_t index, bool with_index) const {
  Json list = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    Json call;
    if (with_index) call["index"] = i;
    call["id"] = str("call_", id, "_", index, "_", i);
    call["type"] = "function";
    call["function"] = {{"name", calls[i].name}, {"arguments", calls[i].arguments}};
    list.push_back(std::move(call));
  }
  return list;
}

std::string_view ChatJob::finish_reason(const Choice& choice, bool calls) const {
  const std::string_view name = finish_name(*choice.finish);
  return calls && name == "stop" ? "tool_calls" : name;
}

Json ChatJob::usage_chunk() const {
  Json chunk = head("chat.completion.chunk");
  chunk["choices"] = Json::array();
  chunk["usage"] = usage();
  return chunk;
}

Json ChatJob::body() {
  Json list = Json::array();
  for (int64_t i = 0; i < total_choices(); ++i) {
    const Choice& choice = choices[static_cast<size_t>(i)];
    const ParsedAnswer parsed = parse_answer(choice.text, tools_);
    Json message{{"role", "assistant"}, {"content", parsed.text}, {"refusal", nullptr}};
    if (!parsed.calls.empty()) {
      if (parsed.text.empty()) message["content"] = nullptr;
      message["tool_calls"] = calls_json(parsed.calls, i, false);
    }
    Json json{{"index", i},
              {"message", std::move(message)},
              {"logprobs", nullptr},
              {"finish_reason", finish_reason(choice, !parsed.calls.empty())}};
    if (logprobs_) json["logprobs"] = chat_logprobs(*model, prompts.front().back(), choice.tokens, return_ids_);
    if (return_ids_) json["token_ids"] = ids_of(choice.tokens);
    list.push_back(std::move(json));
  }
  Json json = head("chat.completion");
  json["choices"] = std::move(list);
  json["usage"] = usage();
  if (return_ids_) json["prompt_token_ids"] = prompts.front();
  if (request.prompt_logprobs >= 0) {
    json["prompt_logprobs"] = prompt_logprobs_json(*model, prompts.front(), choices.front().prompt_scores);
  }
  return json;
}

}  // namespace

std::string render_chat(const ServedModel& model, const Json& messages, const Json& tools, const Json& kwargs,
                        bool add_generation_prompt) {
  tokenizer_of(model);
  Json context{{"messages", messages}, {"add_generation_prompt", add_generation_prompt}};
  if (!tools.is_null()) context["tools"] = tools;
  if (!kwargs.is_null()) context["chat_template_kwargs"] = kwargs;
  try {
    return model.chat_template->render(context);
  } catch (const text::TemplateError& error) {
    throw ApiError(400, str("messages: ", error.what()), "messages");
  }
}

void run_chat(const Json& body, const std::shared_ptr<Exchange>& exchange, const std::shared_ptr<ServedModel>& model,
              Metrics& metrics) {
  auto job = std::make_shared<ChatJob>(exchange, model, metrics);
  job->read(body);
  job->submit("messages");
}

}  // namespace lamina::serve
