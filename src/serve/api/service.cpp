#include "lamina/serve/api/service.h"

#include "lamina/base/json.h"
#include "lamina/base/suggest.h"
#include "lamina/base/version.h"
#include "lamina/serve/api/chat.h"
#include "lamina/serve/api/chat_messages.h"
#include "lamina/serve/api/completions.h"
#include "lamina/serve/api/embeddings.h"
#include "lamina/serve/api/failure.h"
#include "lamina/serve/api/inspect.h"
#include "lamina/serve/api/messages.h"
#include "lamina/serve/api/model_list.h"
#include "lamina/serve/api/request_fields.h"
#include "lamina/serve/api/response_input.h"
#include "lamina/serve/api/responses.h"
#include "lamina/serve/http/policy.h"
#include "lamina/serve/http/request_parts.h"
#include "lamina/serve/page/page.h"

namespace lamina::serve {
namespace {

constexpr const char* kModel = "/v1/models/*";
constexpr const char* kArchitecture = "/v1/models/*/architecture";
constexpr const char* kResponse = "/v1/responses/*";
constexpr const char* kCancel = "/v1/responses/*/cancel";
constexpr const char* kInputItems = "/v1/responses/*/input_items";
constexpr size_t kMaxListedIds = size_t{1} << 22;

/// Whether a path fits the path of a route. `id` receives the part that '*' stands for, decoded; it is not empty.
bool matches(std::string_view pattern, std::string_view path, std::string* id = nullptr) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == path;
  const std::string_view begin = pattern.substr(0, star), end = pattern.substr(star + 1);
  if (path.size() < pattern.size() || !path.starts_with(begin) || !path.ends_with(end)) return false;
  if (id) *id = percent_decoded(path.substr(star, path.size() + 1 - pattern.size()));
  return true;
}

std::string id_in(const Exchange& exchange, std::string_view pattern) {
  std::string id;
  matches(pattern, exchange.request().path, &id);
  return id;
}

/// Renders a conversation, with the fields tools, tool_choice, chat_template_kwargs and add_generation_prompt.
std::string render_conversation(const ServedModel& model, const Json& messages, Fields& fields) {
  const Json* kwargs = fields.find("chat_template_kwargs");
  if (kwargs && !kwargs->is_object()) fields.fail("chat_template_kwargs", "expected an object");
  const bool open = fields.flag("add_generation_prompt", true);
  const ToolUse tools = read_tools(fields);
  return render_chat(model, read_messages(messages), tools.list, kwargs ? *kwargs : Json(nullptr), open);
}

Json body_of(const Exchange& exchange) {
  const std::string& text = exchange.request().body;
  if (text.empty()) throw ApiError(400, "the body is empty; expected a JSON object");
  try {
    return parse_json<Json>(text, "body");
  } catch (const Error& error) {
    throw ApiError(400, error.what());
  }
}

}  // namespace

Service::Service(std::vector<std::shared_ptr<ServedModel>> models, int workers) : models_(std::move(models)) {
  if (workers > 0) workers_ = std::make_shared<WorkerPool>(workers);
}

/// Of the paths with '*', the more special ones come first.
const std::vector<Service::Route>& Service::routes() {
  static const std::vector<Route> table{
      {"GET", "/", &Service::get_page},
      {"GET", "/favicon.ico", &Service::get_icon},
      {"GET", "/health", &Service::get_health},
      {"GET", "/ready", &Service::get_ready},
      {"GET", "/version", &Service::get_version},
      {"GET", "/metrics", &Service::get_metrics},
      {"GET", "/v1/models", &Service::get_models},
      {"GET", kArchitecture, &Service::get_architecture},
      {"GET", kModel, &Service::get_model},
      {"GET", "/v1/scheduler", &Service::get_scheduler},
      {"POST", "/v1/completions", &Service::post_completions},
      {"POST", "/v1/chat/completions", &Service::post_chat},
      {"POST", "/v1/messages", &Service::post_messages},
      {"POST", "/v1/messages/count_tokens", &Service::post_count_tokens},
      {"POST", "/v1/inspect", &Service::post_inspect},
      {"POST", "/v1/embeddings", &Service::post_embeddings},
      {"POST", "/v1/responses", &Service::post_responses},
      {"POST", kCancel, &Service::post_cancel},
      {"GET", kInputItems, &Service::get_input_items},
      {"GET", kResponse, &Service::get_response},
      {"DELETE", kResponse, &Service::delete_response},
      {"POST", "/tokenize", &Service::post_tokenize},
      {"POST", "/detokenize", &Service::post_detokenize},
      {"POST", "/apply-template", &Service::post_apply_template},
  };
  return table;
}

void Service::handle(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  const bool light = request.method != "POST" && !matches(kArchitecture, request.path);
  if (!workers_ || light) return dispatch(exchange);
  workers_->post([this, exchange] { dispatch(exchange); });
}

void Service::dispatch(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  std::string_view path;  // of the first route that fits
  std::string allowed;
  std::vector<std::string> paths;
  for (const Route& route : routes()) {
    paths.emplace_back(route.path);
    if (path.empty() && matches(route.path, request.path)) path = route.path;
    if (path != route.path) continue;
    if (method == route.method) return answer(exchange, route.endpoint);
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
    if (allowed.ends_with("GET")) allowed += ", HEAD";
  }
  if (!path.empty()) {
    HttpResponse response = error_response(405, str("method ", request.method.substr(0, 20), " is not allowed; ",
                                                    request.path.substr(0, 100), " takes ", allowed));
    response.headers.emplace_back("Allow", allowed);
    return exchange->send(std::move(response));
  }
  const std::string hint = did_you_mean(request.path.substr(0, 64), paths);
  exchange->send(error_response(404, str("no endpoint ", request.path.substr(0, 100), hint.empty() ? "" : "; ", hint)));
}

void Service::answer(const std::shared_ptr<Exchange>& exchange, Endpoint endpoint) {
  try {
    (this->*endpoint)(exchange);
  } catch (...) {
    exchange->send(failure_response(std::current_exception()));
  }
}

std::shared_ptr<ServedModel> Service::model_of(const Json& body, const char* field) const {
  Fields fields(body);
  const std::string name = fields.text(field);
  if (!name.empty()) return model_called(name, field);
  if (models_.size() == 1) return models_.front();
  throw ApiError(400, str(field, ": is missing; this server has ", model_names()), field);
}

std::shared_ptr<ServedModel> Service::model_called(const std::string& name, const char* field) const {
  for (const auto& model : models_) {
    if (model->id == name) return model;
  }
  throw ApiError(404, str(field, ": '", name.substr(0, 100), "' is not served; this server has ", model_names()), field,
                 "model_not_found");
}

std::string Service::model_names() const {
  std::string list;
  for (const auto& model : models_) list += (list.empty() ? "" : ", ") + model->id;
  return list;
}

void Service::get_page(const std::shared_ptr<Exchange>& exchange) { exchange->send(page_response()); }

void Service::get_icon(const std::shared_ptr<Exchange>& exchange) { exchange->send(icon_response()); }

/// Engines outlive the service, so the returned function holds only a weak pointer to the workers.
PostToWorker Service::worker_poster() const {
  if (!workers_) return [](const std::function<void()>& task) { task(); };
  return [weak = std::weak_ptr<WorkerPool>(workers_)](std::function<void()> task) {
    if (const auto workers = weak.lock()) workers->post(std::move(task));
  };
}

void Service::get_health(const std::shared_ptr<Exchange>& exchange) {
  exchange->send(json_response({{"status", "ok"}}));
}

void Service::get_ready(const std::shared_ptr<Exchange>& exchange) {
  if (draining_) return exchange->send(error_response(503, "the server is shutting down"));
  exchange->send(json_response({{"status", "ready"}}));
}

void Service::get_version(const std::shared_ptr<Exchange>& exchange) {
  exchange->send(json_response({{"version", std::string(kVersion)}}));
}

void Service::get_metrics(const std::shared_ptr<Exchange>& exchange) {
  std::vector<EngineReport> engines;
  for (const auto& model : models_) {
    engines.push_back({model->id, model->backend->stats(), {}, {}});
    if (!model->events) continue;
    engines.back().queue = model->events->queue_seconds();
    engines.back().prompt = model->events->prompt_seconds();
  }
  exchange->send({200, metrics_.text(engines), "text/plain; version=0.0.4; charset=utf-8", {}});
}

void Service::get_models(const std::shared_ptr<Exchange>& exchange) {
  Json list = Json::array();
  for (const auto& model : models_) list.push_back(describe_model(*model));
  exchange->send(json_response({{"object", "list"}, {"data", list}}));
}

void Service::get_model(const std::shared_ptr<Exchange>& exchange) {
  exchange->send(json_response(describe_model(*model_called(id_in(*exchange, kModel), "model"))));
}

void Service::get_architecture(const std::shared_ptr<Exchange>& exchange) {
  exchange->send(json_response(describe_architecture(*model_called(id_in(*exchange, kArchitecture), "model"))));
}

void Service::get_scheduler(const std::shared_ptr<Exchange>& exchange) {
  exchange->send(json_response(describe_scheduler(models_)));
}

void Service::post_completions(const std::shared_ptr<Exchange>& exchange) {
  const Json body = body_of(*exchange);
  run_completion(body, exchange, model_of(body), metrics_);
}

void Service::post_chat(const std::shared_ptr<Exchange>& exchange) {
  const Json body = body_of(*exchange);
  run_chat(body, exchange, model_of(body), metrics_);
}

void Service::post_messages(const std::shared_ptr<Exchange>& exchange) {
  const Json body = body_of(*exchange);
  run_messages(body, exchange, model_of(body), metrics_);
}

void Service::post_count_tokens(const std::shared_ptr<Exchange>& exchange) {
  const Json body = body_of(*exchange);
  exchange->send(json_response({{"input_tokens", count_message_tokens(body, *model_of(body))}}));
}

void Service::post_inspect(const std::shared_ptr<Exchange>& exchange) {
  const Json body = body_of(*exchange);
  const auto model = model_of(body);
  const auto other = Fields(body).has("compare_with") ? model_of(body, "compare_with") : nullptr;
  run_inspect(body, exchange, model, other, worker_poster());
}

void Service::post_embeddings(const std::shared_ptr<Exchange>& exchange) {
  const Json body = body_of(*exchange);
  run_embeddings(body, exchange, model_of(body));
}

void Service::post_responses(const std::shared_ptr<Exchange>& exchange) {
  const Json body = body_of(*exchange);
  run_response(body, exchange, model_of(body), metrics_, responses_);
}

void Service::get_response(const std::shared_ptr<Exchange>& exchange) {
  for (const auto& [name, value] : query_fields(exchange->request().query)) {
    if (name == "stream" && value != "false") {
      throw ApiError(400, "stream: a stored response cannot be streamed; leave it out", "stream");
    }
    if (name != "stream" && name != "include" && name != "include_obfuscation") {
      throw ApiError(400, str(name.substr(0, 64), ": unknown field"), name.substr(0, 64));
    }
  }
  exchange->send(json_response(stored_response(id_in(*exchange, kResponse), *responses_).response));
}

void Service::delete_response(const std::shared_ptr<Exchange>& exchange) {
  const std::string id = id_in(*exchange, kResponse);
  stored_response(id, *responses_);
  responses_->erase(id);
  exchange->send(json_response({{"id", id}, {"object", "response"}, {"deleted", true}}));
}

void Service::post_cancel(const std::shared_ptr<Exchange>& exchange) {
  exchange->send(json_response(cancel_response(id_in(*exchange, kCancel), *responses_)));
}

void Service::get_input_items(const std::shared_ptr<Exchange>& exchange) {
  const StoredResponse stored = stored_response(id_in(*exchange, kInputItems), *responses_);
  exchange->send(json_response(list_input_items(stored.items, exchange->request().query)));
}

void Service::post_tokenize(const std::shared_ptr<Exchange>& exchange) {
  const Json body = body_of(*exchange);
  const auto model = model_of(body);
  Fields fields(body);
  fields.find("model");
  const bool bos = fields.flag("add_special_tokens", true);
  const bool pieces = fields.flag("return_token_strs", false);
  std::vector<text::TokenId> ids;
  if (const Json* messages = fields.find("messages")) {
    ids = encode_chat(*model, render_conversation(*model, *messages, fields));
  } else if (fields.has("prompt")) {
    ids = encode_prompt(*model, fields.text("prompt"), "prompt");
    if (!bos && tokenizer_of(*model).bos()) ids.erase(ids.begin());
  } else {
    fields.fail("prompt", "is missing; expected a string, or messages");
  }
  fields.finish();
  Json json{{"tokens", ids}, {"count", ids.size()}, {"max_model_len", model->backend->shape().context}};
  if (fields.has("messages")) json["stop"] = model->chat_template->stop_strings();
  if (pieces) {
    json["token_strs"] = Json::array();
    std::optional<text::TokenId> previous;
    for (const text::TokenId id : ids) {
      json["token_strs"].push_back(token_text(*model, previous, id));
      previous = id;
    }
  }
  exchange->send(json_response(json));
}

void Service::post_detokenize(const std::shared_ptr<Exchange>& exchange) {
  const Json body = body_of(*exchange);
  const auto model = model_of(body);
  Fields fields(body);
  fields.find("model");
  const Json* tokens = fields.find("tokens");
  if (!tokens || !tokens->is_array() || tokens->size() > kMaxListedIds) {
    fields.fail("tokens", "expected a list of token ids");
  }
  fields.finish();
  const auto ids = checked_ids(*tokens, *model, "tokens");
  for (const text::TokenId id : ids) {
    if (id >= tokenizer_of(*model).vocab_size()) {
      fields.fail("tokens", str("holds ", id, ", which the tokenizer has no text for"));
    }
  }
  exchange->send(json_response({{"prompt", tokenizer_of(*model).decode(ids)}}));
}

void Service::post_apply_template(const std::shared_ptr<Exchange>& exchange) {
  const Json body = body_of(*exchange);
  const auto model = model_of(body);
  Fields fields(body);
  fields.find("model");
  const Json* messages = fields.find("messages");
  if (!messages) fields.fail("messages", "is missing; expected a list of messages");
  const std::string text = render_conversation(*model, *messages, fields);
  fields.finish();
  exchange->send(json_response({{"prompt", text}}));
}

}  // namespace lamina::serve
