#include "lamina/serve/api/answer_job.h"

#include <ctime>
#include <utility>

#include "lamina/serve/http/policy.h"

namespace lamina::serve {

HttpResponse json_response(const Json& json) {
  HttpResponse response;
  response.body = dump(json);
  return response;
}

AnswerJob::AnswerJob(std::shared_ptr<Exchange> client, std::shared_ptr<ServedModel> served, Metrics& metrics)
    : exchange(std::move(client)),
      model(std::move(served)),
      id(exchange->request().id),
      created(static_cast<int64_t>(std::time(nullptr))),
      metrics_(metrics) {
  request.client = exchange->request().peer;
}

void AnswerJob::read_stream_fields(Fields& fields) {
  stream = fields.flag("stream", false);
  const Json* options = fields.find("stream_options");
  if (!options) return;
  if (!stream) fields.fail("stream_options", "needs \"stream\": true");
  Fields inner(*options, "stream_options");
  include_usage = inner.flag("include_usage", false);
  inner.flag("include_obfuscation", false);
  inner.finish();
}

void AnswerJob::check_lengths(const std::string& param) const {
  const int64_t context = model->backend->shape().context;
  const int64_t most = request.max_tokens > 0 ? context - 1 : context + 1;  // of a prompt; see infer::check_request
  for (const auto& prompt : prompts) {
    const auto length = static_cast<int64_t>(prompt.size());
    if (length <= most) continue;
    throw ApiError(400,
                   str(param, ": ", length, " tokens; the context of ", model->id, " holds ", context,
                       " with the answer: shorten the prompt"),
                   param, "context_length_exceeded");
  }
}

void AnswerJob::submit(const std::string& param) {
  check_lengths(param);
  choices.resize(prompts.size() * static_cast<size_t>(request.n));
  for (const auto& prompt : prompts) prompt_tokens += static_cast<int64_t>(prompt.size());
  exchange->on_close([self = shared_from_this()] { self->on_client_gone(); });
  std::vector<infer::RequestId> ids;
  try {
    for (size_t i = 0; i < prompts.size(); ++i) {
      infer::Request one = request;
      one.prompt = prompts[i];
      ids.push_back(model->backend->submit(std::move(one), [self = shared_from_this(), i](const infer::Update& update) {
        // The request ends through Backend::cancel, which counts it as cancelled.
        if (self->cancelled_) return true;
        // A plain capture of `update` would be const, so each move of the task would copy it.
        self->exchange->post([self, i, own = update]() mutable { self->on_update(i, std::move(own)); });
        return true;
      }));
    }
  } catch (...) {
    cancelled_ = true;
    for (const infer::RequestId one : ids) model->backend->cancel(one);
    throw;
  }
  exchange->post([self = shared_from_this(), ids = std::move(ids)]() mutable { self->on_submitted(std::move(ids)); });
}

void AnswerJob::on_submitted(std::vector<infer::RequestId> ids) {
  ids_ = std::move(ids);
  submitted_ = true;
  if (cancelled_) return on_client_gone();
  if (stream) {
    // X-Accel-Buffering: nginx would otherwise collect events before it forwards them.
    exchange->start(
        {200, "", "text/event-stream; charset=utf-8", {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
    stream_start();
  }
  for (auto& [prompt, update] : std::exchange(early_, {})) on_update(prompt, std::move(update));
}

void AnswerJob::on_update(size_t prompt, infer::Update update) {
  if (!submitted_) {
    early_.emplace_back(prompt, std::move(update));
    return;
  }
  if (ended_ || cancelled_) return;
  if (update.finish == infer::Finish::error) return fail(update.error);
  const int64_t index = static_cast<int64_t>(prompt) * request.n + update.answer;
  Choice& choice = choices.at(static_cast<size_t>(index));
  record_times(choice, update);
  answer_tokens += static_cast<int64_t>(update.tokens.size());
  choice.text += update.text;
  if (!update.prompt.empty()) choice.prompt_scores = update.prompt;
  if (update.finish) {
    choice.finish = update.finish;
    choice.stop = update.stop;
    if (update.answer == 0) cached_tokens += update.cached_tokens;
    ++finished_;
  }
  if (stream) stream_update(index, update);
  if (keeps_tokens) {
    choice.tokens.insert(choice.tokens.end(), std::make_move_iterator(update.tokens.begin()),
                         std::make_move_iterator(update.tokens.end()));
  }
  if (finished_ == total_choices()) complete();
}

void AnswerJob::record_times(Choice& choice, const infer::Update& update) {
  if (update.tokens.empty()) return;
  const double now =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - exchange->request().received).count();
  auto tokens = static_cast<int64_t>(update.tokens.size());
  if (choice.last_token == 0) {
    metrics_.add_first_token(model->id, now);
    --tokens;
  }
  if (tokens > 0) metrics_.add_next_tokens(model->id, choice.last_token == 0 ? 0 : now - choice.last_token, tokens);
  choice.last_token = now;
}

void AnswerJob::cancel_answers() {
  exchange->post([self = shared_from_this()] {
    for (const infer::RequestId one : self->ids_) self->model->backend->cancel(one);
  });
}

void AnswerJob::on_client_gone() {
  cancelled_ = true;
  if (!std::exchange(ended_, true)) abandoned("");
  for (const infer::RequestId one : ids_) model->backend->cancel(one);
}

void AnswerJob::fail(const std::string& message) {
  ended_ = true;
  cancelled_ = true;
  for (const infer::RequestId one : ids_) model->backend->cancel(one);
  abandoned(message);
  const HttpResponse response = error_response(500, message);
  if (stream) {
    exchange->write(error_event(response.body));
    exchange->finish();
  } else {
    exchange->send(response);
  }
}

void AnswerJob::complete() {
  ended_ = true;
  metrics_.add_request(
      model->id,
      std::chrono::duration<double>(std::chrono::steady_clock::now() - exchange->request().received).count());
  if (!stream) return exchange->send(json_response(body()));
  stream_end();
  exchange->finish();
}

void AnswerJob::stream_end() {
  if (include_usage) write_event(usage_chunk());
  exchange->write("data: [DONE]\n\n");
}

/// A stream has one event per token, so the text common to all events stays in the buffer.
std::string& AnswerJob::begin_choice() {
  if (event_begin_ == 0) {
    event_ = "data: " + dump(chunk_head());
    event_.back() = ',';  // in place of the closing brace
    event_ += "\"choices\":[";
    event_begin_ = event_.size();
  }
  event_.resize(event_begin_);
  return event_;
}

void AnswerJob::end_choice() {
  event_ += usage_in_chunks ? "],\"usage\":null}\n\n" : "]}\n\n";
  exchange->write(event_);
}

std::string_view AnswerJob::finish_name(infer::Finish finish) const {
  switch (finish) {
    case infer::Finish::max_tokens:
    case infer::Finish::context:
    case infer::Finish::deadline: return "length";
    default: return "stop";
  }
}

Json AnswerJob::usage() const {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", answer_tokens},
          {"total_tokens", prompt_tokens + answer_tokens},
          {"prompt_tokens_details", {{"cached_tokens", cached_tokens}}}};
}

}  // namespace lamina::serve
