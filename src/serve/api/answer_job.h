#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "lamina/serve/api/fields.h"
#include "lamina/serve/api/metrics.h"
#include "lamina/serve/api/served_model.h"
#include "lamina/serve/http/exchange.h"

namespace lamina::serve {

/// A 200 response with this JSON as its body.
HttpResponse json_response(const Json& json);

/// One answer (OpenAI: choice) of a response. A request may ask for several per prompt.
struct Choice {
  std::string text;
  std::vector<infer::ScoredToken> tokens;
  std::vector<infer::ScoredToken> prompt_scores;
  std::optional<infer::Finish> finish;
  std::string stop;       ///< the stop string that ended it
  double last_token = 0;  ///< seconds after the request's arrival; 0: no token yet
};

/// Submits a request's prompts to the engine and turns the engine's updates into a response, streamed or not.
/// Preparation and submit() run on a worker thread, everything else on the network thread.
class AnswerJob : public std::enable_shared_from_this<AnswerJob> {
 public:
  AnswerJob(std::shared_ptr<Exchange> exchange, std::shared_ptr<ServedModel> model, Metrics& metrics);
  virtual ~AnswerJob() = default;
  AnswerJob(const AnswerJob&) = delete;
  AnswerJob& operator=(const AnswerJob&) = delete;

  /// `param` is the field of the prompt, for errors. Throws ApiError and QueueFull. After an exception none of the
  /// prompts is running.
  void submit(const std::string& param);
  /// Ends the answers early; the response holds the text generated so far. Thread-safe.
  void cancel_answers();

 protected:
  /// Reads stream and stream_options.
  void read_stream_fields(Fields& fields);
  std::string_view finish_name(infer::Finish finish) const;
  Json usage() const;
  int64_t total_choices() const { return static_cast<int64_t>(choices.size()); }
  void write_event(const Json& json) { exchange->write("data: " + dump(json) + "\n\n"); }
  /// Begins an event with the fields of chunk_head() and one choice. The caller appends the choice as JSON text.
  std::string& begin_choice();
  /// Writes the event.
  void end_choice();
  const std::vector<text::TokenId>& prompt_of(int64_t choice) const {
    return prompts[static_cast<size_t>(choice / request.n)];
  }

  // The format of the response, by the derived class. Choices are numbered prompt by prompt.
  virtual void stream_start() {}
  virtual void stream_update(int64_t choice, const infer::Update& update) = 0;
  virtual void stream_end();
  virtual std::string error_event(const std::string& body) const { return "data: " + body + "\n\n"; }
  /// The JSON fields that precede `choices` in every event, for begin_choice().
  virtual Json chunk_head() const { return nullptr; }
  /// The chunk before the end of a stream, if the client asked for usage.
  virtual Json usage_chunk() const { return nullptr; }
  virtual Json body() = 0;
  /// The client has gone (`error` is empty) or the engine failed; there will be no body and no more events.
  virtual void abandoned(const std::string& /*error*/) {}

  std::shared_ptr<Exchange> exchange;
  std::shared_ptr<ServedModel> model;
  infer::Request request;  ///< settings common to all prompts; its prompt is empty
  std::vector<std::vector<text::TokenId>> prompts;
  std::vector<Choice> choices;
  bool stream = false;
  bool include_usage = false;
  bool usage_in_chunks = false;  ///< events with a choice have "usage": null
  bool keeps_tokens = false;     ///< body() needs choices[].tokens
  std::string id;
  int64_t created = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, answer_tokens = 0;

 private:
  void check_lengths(const std::string& param) const;
  void on_submitted(std::vector<infer::RequestId> ids);
  void on_update(size_t prompt, infer::Update update);
  void record_times(Choice& choice, const infer::Update& update);
  void on_client_gone();
  void fail(const std::string& message);
  void complete();

  Metrics& metrics_;
  std::atomic<bool> cancelled_{false};
  bool submitted_ = false;
  bool ended_ = false;
  std::vector<std::pair<size_t, infer::Update>> early_;  ///< updates that arrived before on_submitted
  std::vector<infer::RequestId> ids_;
  int64_t finished_ = 0;
  std::string event_;       ///< the event that is being written, after begin_choice()
  size_t event_begin_ = 0;  ///< length of its constant beginning, up to the choice; 0: not built yet
};

}  // namespace lamina::serve
