#include "lamina/serve/api/responses.h"

#include <random>
#include <utility>

#include "lamina/serve/api/answer_format.h"
#include "lamina/serve/api/chat.h"
#include "lamina/serve/api/request_fields.h"
#include "lamina/serve/api/required_call.h"
#include "lamina/serve/api/response_input.h"

namespace lamina::serve {
namespace {

constexpr int64_t kMaxResponseLogprobs = 20;

/// A response's id must be hard to guess, because anyone who knows it can read the response. The request's id does not
/// qualify: a client may choose it.
std::string random_id() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) {
    char part[9];
    std::snprintf(part, sizeof part, "%08x", static_cast<unsigned>(random()));
    id += part;
  }
  return id;
}

class ResponseJob final : public AnswerJob {
 public:
  ResponseJob(std::shared_ptr<Exchange> client, std::shared_ptr<ServedModel> served, Metrics& metrics,
              std::shared_ptr<ResponseStore> store)
      : AnswerJob(std::move(client), std::move(served), metrics), store_(std::move(store)) {
    id = random_id();
  }
  void read(const Json& body);
  /// Stores the response with status "in_progress", if the client asked for storage.
  void begin();
  /// Removes the response from the store.
  void forget() { store_->erase(response_id()); }

 protected:
  void stream_start() override;
  void stream_update(int64_t index, const infer::Update& update) override;
  void stream_end() override;
  std::string error_event(const std::string& body) const override;
  Json body() override;

 private:
  void read_conversation(Fields& fields);
  void read_format(Fields& fields);
  void read_settings(Fields& fields);
  void write_named(const std::string& type, Json data);
  void write_part(const char* type, const Json& more);
  void write_text(const std::string& text);
  void end_text();
  void open_call(size_t index);
  void open_required_call();
  void write_arguments(size_t index, const std::string& text);
  void close_call(size_t index);
  std::string call_id(const char* kind, size_t index) const { return str(kind, "_", id, "_", index); }
  int64_t call_place(size_t index) const { return static_cast<int64_t>(index) + (text_open_ ? 1 : 0); }
  std::string response_id() const { return "resp_" + id; }
  std::string status() const;
  Json message_item(const std::string& text, const char* status) const;
  Json text_part(const std::string& text) const;
  Json call_item(size_t index, const char* status, bool with_arguments) const;
  Json output() const;
  Json response(const std::string& status) const;
  void store_result();
  void abandoned(const std::string& error) override;

  std::shared_ptr<ResponseStore> store_;
  bool stores_ = true;
  Json items_ = Json::array();    ///< the input, with that of earlier responses, without instructions
  Json echoed_ = Json::object();  ///< fields of the request that the response repeats
  ToolUse tools_;
  AnswerFormat format_;
  bool logprobs_ = false;
  ParsedAnswer parsed_;
  // Progress of the event stream: number of the next event, and bytes of text sent.
  int64_t sequence_ = 0;
  size_t sent_ = 0;
  bool text_open_ = false;
  RequiredCall call_;  ///< if the tools require a call
  bool call_open_ = false;
  Json fresh_logprobs_ = Json::array();  ///< of tokens whose text was not sent yet
};

void ResponseJob::read_conversation(Fields& fields) {
  Json earlier = Json::array();
  const std::string previous = fields.text("previous_response_id");
  if (!previous.empty()) {
    const auto stored = store_->find(previous);
    if (!stored || stored->response["status"] == "in_progress") {
      throw ApiError(404, str("previous_response_id: '", previous.substr(0, 80), "' is not stored, or not complete"),
                     "previous_response_id", "previous_response_not_found");
    }
    earlier = conversation_items(*stored);
  }
  ResponseInput input = read_response_input(fields, std::move(earlier), id);
  items_ = std::move(input.items);
  Json messages = Json::array();
  const std::string instructions = fields.text("instructions");
  if (!instructions.empty()) messages.push_back({{"role", "system"}, {"content", instructions}});
  for (Json& message : input.messages) messages.push_back(std::move(message));
  const Json* kwargs = fields.find("chat_template_kwargs");
  if (kwargs && !kwargs->is_object()) fields.fail("chat_template_kwargs", "expected an object");
  tools_ = read_response_tools(fields);
  prompts.push_back(
      encode_chat(*model, render_chat(*model, messages, tools_.list, kwargs ? *kwargs : Json(nullptr), true)));
  if (prompts.back().empty()) fields.fail("input", "the rendered conversation is empty");
}

void ResponseJob::read_format(Fields& fields) {
  if (const Json* text = fields.find("text")) {
    Fields outer(*text, "text");
    outer.refuse("verbosity", "is not supported; leave it out");
    if (const Json* format = outer.find("format")) {
      Fields inner(*format, "text.format");
      format_.type = read_format_type(inner);
      if (format_.type == "json_schema") format_.schema = read_named_schema(inner);
      inner.finish();
    }
    outer.finish();
  }
  constrain_answer(*model, tools_, format_, "text.format", request);
}

void ResponseJob::read_settings(Fields& fields) {
  const int64_t context = model->backend->shape().context;
  const int64_t room = std::max<int64_t>(1, context - static_cast<int64_t>(prompts.front().size()));
  request.max_tokens = std::min(fields.integer("max_output_tokens", room, 1, int64_t{1} << 24), context);
  request.min_tokens = fields.integer("min_tokens", 0, 0, request.max_tokens);
  stores_ = fields.flag("store", true);
  if (request.n != 1) fields.fail("n", str(request.n, "; a response is one answer"));
  if (const Json* include = fields.find("include")) {
    if (!include->is_array()) fields.fail("include", "expected a list");
    for (const Json& name : *include) {
      if (name != Json("message.output_text.logprobs")) fields.fail("include", str(brief(name), " is not supported"));
      logprobs_ = true;
    }
  }
  const int64_t top = fields.integer("top_logprobs", 0, 0, kMaxResponseLogprobs);
  if (logprobs_ || top > 0) request.logprobs = top;
  logprobs_ = request.logprobs >= 0;
  const std::string truncation = fields.text("truncation", "disabled");
  if (truncation != "disabled") fields.fail("truncation", str("'", truncation.substr(0, 40), "'; expected disabled"));
  if (fields.flag("background", false)) fields.fail("background", "is not supported; expected false");
  for (const char* name : {"conversation", "prompt", "reasoning", "context_management", "moderation"}) {
    fields.refuse(name, "is not supported; leave it out");
  }
  fields.ignore({"max_tool_calls"});
}

void ResponseJob::read(const Json& json) {
  Fields fields(json);
  fields.find("model");
  read_conversation(fields);
  read_sampling(fields, *model, request);
  read_settings(fields);
  read_stream_fields(fields);
  read_format(fields);
  fields.finish();
  for (const std::string& stop : model->chat_template->stop_strings()) request.stop_strings.push_back(stop);
  call_ = RequiredCall(tools_.forced);
  keeps_tokens = logprobs_;
  for (const char* name : {"instructions", "max_output_tokens", "previous_response_id", "tool_choice", "tools", "user",
                           "metadata", "prompt_cache_key", "safety_identifier"}) {
    echoed_[name] = json.contains(name) ? json[name] : Json(nullptr);
  }
  echoed_["top_logprobs"] = std::max<int64_t>(0, request.logprobs);
  if (echoed_["tool_choice"].is_null()) echoed_["tool_choice"] = "auto";
  if (echoed_["tools"].is_null()) echoed_["tools"] = Json::array();
  if (echoed_["metadata"].is_null()) echoed_["metadata"] = Json::object();
  echoed_["parallel_tool_calls"] = json.value("parallel_tool_calls", Json(true));
  echoed_["text"] = json.contains("text") ? json["text"] : Json{{"format", {{"type", "text"}}}};
}

void ResponseJob::begin() {
  if (!stores_) return;
  const std::weak_ptr<AnswerJob> weak = weak_from_this();
  store_->put(response_id(), {response("in_progress"), items_, [weak] {
                                if (const auto job = weak.lock()) job->cancel_answers();
                              }});
}

std::string ResponseJob::status() const {
  const infer::Finish finish = *choices.front().finish;
  if (finish == infer::Finish::cancelled) return "cancelled";
  return finish_name(finish) == "length" ? "incomplete" : "completed";
}

Json ResponseJob::text_part(const std::string& text) const {
  Json part{{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
  if (logprobs_ && !choices.empty()) {
    part["logprobs"] = chat_logprobs(*model, prompts.front().back(), choices.front().tokens)["content"];
  }
  return part;
}

Json ResponseJob::message_item(const std::string& text, const char* status) const {
  Json item{{"type", "message"}, {"id", "msg_" + id}, {"status", status}, {"role", "assistant"}};
  item["content"] = Json::array();
  if (std::string_view(status) != "in_progress") item["content"].push_back(text_part(text));
  return item;
}

Json ResponseJob::call_item(size_t index, const char* status, bool with_arguments) const {
  return {{"type", "function_call"},
          {"id", call_id("fc", index)},
          {"call_id", call_id("call", index)},
          {"name", parsed_.calls[index].name},
          {"arguments", with_arguments ? parsed_.calls[index].arguments : ""},
          {"status", status}};
}

Json ResponseJob::output() const {
  Json items = Json::array();
  const char* item_status = status() == "completed" ? "completed" : "incomplete";
  if (!parsed_.text.empty() || parsed_.calls.empty()) items.push_back(message_item(parsed_.text, item_status));
  for (size_t i = 0; i < parsed_.calls.size(); ++i) items.push_back(call_item(i, item_status, true));
  return items;
}

Json ResponseJob::response(const std::string& status) const {
  Json json{{"id", response_id()},
            {"object", "response"},
            {"created_at", created},
            {"status", status},
            {"background", false},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"model", model->id},
            {"system_fingerprint", model->fingerprint}};
  json.update(echoed_);
  json["output"] = status == "in_progress" ? Json::array() : output();
  json["reasoning"] = {{"effort", nullptr}, {"summary", nullptr}};
  json["service_tier"] = "default";
  json["store"] = stores_;
  json["temperature"] = request.sampler.temperature;
  json["top_p"] = request.sampler.top_p;
  json["truncation"] = "disabled";
  json["usage"] = nullptr;
  if (status == "incomplete") json["incomplete_details"] = {{"reason", "max_output_tokens"}};
  if (status != "in_progress") {
    json["usage"] = {{"input_tokens", prompt_tokens},
                     {"input_tokens_details", {{"cached_tokens", cached_tokens}}},
                     {"output_tokens", answer_tokens},
                     {"output_tokens_details", {{"reasoning_tokens", 0}}},
                     {"total_tokens", prompt_tokens + answer_tokens}};
  }
  return json;
}

void ResponseJob::store_result() {
  if (!stores_) return;
  store_->update(response_id(), {response(status()), items_, {}});
}

/// A response without an answer, for those who read it by its id.
void ResponseJob::abandoned(const std::string& error) {
  if (!stores_) return;
  Json json = response("in_progress");
  json["status"] = error.empty() ? "cancelled" : "failed";
  if (!error.empty()) json["error"] = {{"code", "server_error"}, {"message", error}};
  store_->update(response_id(), {std::move(json), items_, {}});
}

void ResponseJob::write_named(const std::string& type, Json data) {
  Json event{{"type", type}, {"sequence_number", sequence_++}};
  event.update(data);
  exchange->write("event: " + type + "\ndata: " + dump(event) + "\n\n");
}

void ResponseJob::stream_start() {
  write_named("response.created", {{"response", response("in_progress")}});
  write_named("response.in_progress", {{"response", response("in_progress")}});
  if (!tools_.forced.empty()) open_required_call();
}

/// Opens the call, whose name is known now. Its arguments are streamed as they are generated.
void ResponseJob::open_required_call() {
  parsed_.calls = {ToolCall{call_.name(), ""}};
  open_call(0);
  call_open_ = true;
}

/// Writes an event about the text of the message. The message is always the first output item.
void ResponseJob::write_part(const char* type, const Json& more) {
  Json data{{"item_id", "msg_" + id}, {"output_index", 0}, {"content_index", 0}};
  data.update(more);
  write_named(type, std::move(data));
}

void ResponseJob::write_text(const std::string& text) {
  if (!text_open_) {
    write_named("response.output_item.added", {{"output_index", 0}, {"item", message_item("", "in_progress")}});
    Json part{{"type", "output_text"}, {"text", ""}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
    write_part("response.content_part.added", {{"part", std::move(part)}});
    text_open_ = true;
  }
  if (text.empty()) return;
  write_part("response.output_text.delta",
             {{"delta", text}, {"logprobs", std::exchange(fresh_logprobs_, Json::array())}});
}

void ResponseJob::end_text() {
  write_text("");
  const Json part = text_part(parsed_.text);
  write_part("response.output_text.done", {{"text", parsed_.text}, {"logprobs", part["logprobs"]}});
  write_part("response.content_part.done", {{"part", part}});
  write_named("response.output_item.done", {{"output_index", 0}, {"item", output().front()}});
}

void ResponseJob::open_call(size_t index) {
  write_named("response.output_item.added",
              {{"output_index", call_place(index)}, {"item", call_item(index, "in_progress", false)}});
}

void ResponseJob::write_arguments(size_t index, const std::string& text) {
  write_named("response.function_call_arguments.delta",
              {{"item_id", call_id("fc", index)}, {"output_index", call_place(index)}, {"delta", text}});
}

void ResponseJob::close_call(size_t index) {
  const int64_t place = call_place(index);
  const Json item = call_item(index, status() == "completed" ? "completed" : "incomplete", true);
  write_named(
      "response.function_call_arguments.done",
      {{"item_id", item["id"]}, {"output_index", place}, {"name", item["name"]}, {"arguments", item["arguments"]}});
  write_named("response.output_item.done", {{"output_index", place}, {"item", item}});
}

void ResponseJob::stream_update(int64_t /*index*/, const infer::Update& update) {
  if (tools_.choice == ToolUse::Choice::required) {
    const std::string arguments = call_.push(update.text);
    if (call_.known() && !call_open_) open_required_call();
    if (!arguments.empty()) write_arguments(0, arguments);
  }
  if (update.finish) parsed_ = parse_answer(choices.front().text, tools_);
  const std::string text = fresh_text(choices.front().text, update.finish ? &parsed_ : nullptr, tools_, sent_);
  if (logprobs_ && !update.tokens.empty()) {
    const auto& known = choices.front().tokens;
    const auto last = known.empty() ? prompts.front().back() : known.back().id;
    const Json scored = chat_logprobs(*model, last, update.tokens);
    for (const Json& entry : scored["content"]) fresh_logprobs_.push_back(entry);
  }
  if (!text.empty()) write_text(text);
}

void ResponseJob::stream_end() {
  if (!parsed_.text.empty() || parsed_.calls.empty()) end_text();
  for (size_t i = 0; i < parsed_.calls.size(); ++i) {
    if (!call_open_) {
      open_call(i);
      write_arguments(i, parsed_.calls[i].arguments);
    }
    close_call(i);
  }
  store_result();
  const std::string result = status();
  write_named(result == "completed" ? "response.completed" : "response.incomplete", {{"response", response(result)}});
}

std::string ResponseJob::error_event(const std::string& body) const {
  const Json error = Json::parse(body, nullptr, false)["error"];
  Json event{{"type", "error"},
             {"sequence_number", sequence_},
             {"code", "server_error"},
             {"message", error["message"]},
             {"param", nullptr}};
  return "event: error\ndata: " + dump(event) + "\n\n";
}

Json ResponseJob::body() {
  parsed_ = parse_answer(choices.front().text, tools_);
  store_result();
  return response(status());
}

}  // namespace

void run_response(const Json& body, const std::shared_ptr<Exchange>& exchange,
                  const std::shared_ptr<ServedModel>& model, Metrics& metrics,
                  const std::shared_ptr<ResponseStore>& store) {
  const auto job = std::make_shared<ResponseJob>(exchange, model, metrics, store);
  job->read(body);
  job->begin();
  try {
    job->submit("input");
  } catch (...) {
    job->forget();
    throw;
  }
}

StoredResponse stored_response(const std::string& id, const ResponseStore& store) {
  if (auto stored = store.find(id)) return std::move(*stored);
  throw ApiError(404, str("response '", id.substr(0, 80), "' is not stored; only the latest ones are, in memory"),
                 "response_id", "response_not_found");
}

Json cancel_response(const std::string& id, ResponseStore& store) {
  StoredResponse stored = stored_response(id, store);
  if (!stored.cancel) {
    throw ApiError(400, str("response '", id.substr(0, 80), "' has ended; only one in progress can be cancelled"));
  }
  stored.cancel();
  stored.response["status"] = "cancelled";
  return stored.response;
}

}  // namespace lamina::serve
