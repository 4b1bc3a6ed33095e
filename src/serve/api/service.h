#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "lamina/serve/api/answer_job.h"
#include "lamina/serve/api/response_store.h"
#include "lamina/serve/api/worker_pool.h"

namespace lamina::serve {

/// The endpoints of the API. docs/reference/http-api.md describes them.
class Service {
 public:
  /// With `workers` = 0 the calling thread handles requests, for tests.
  explicit Service(std::vector<std::shared_ptr<ServedModel>> models, int workers = 2);

  /// Answers a request. Never throws.
  void handle(const std::shared_ptr<Exchange>& exchange);
  /// Shutdown has begun: from now on /ready answers 503.
  void begin_drain() { draining_ = true; }
  Metrics& metrics() { return metrics_; }

 private:
  using Endpoint = void (Service::*)(const std::shared_ptr<Exchange>&);
  struct Route {
    const char* method;
    const char* path;  ///< '*' stands for an id
    Endpoint endpoint;
  };
  static const std::vector<Route>& routes();
  void dispatch(const std::shared_ptr<Exchange>& exchange);
  void answer(const std::shared_ptr<Exchange>& exchange, Endpoint endpoint);
  /// The model named by the request field `field`.
  std::shared_ptr<ServedModel> model_of(const Json& body, const char* field = "model") const;
  std::shared_ptr<ServedModel> model_called(const std::string& name, const char* field) const;
  std::string model_names() const;
  PostToWorker worker_poster() const;

  void get_page(const std::shared_ptr<Exchange>& exchange);
  void get_icon(const std::shared_ptr<Exchange>& exchange);
  void get_health(const std::shared_ptr<Exchange>& exchange);
  void get_ready(const std::shared_ptr<Exchange>& exchange);
  void get_version(const std::shared_ptr<Exchange>& exchange);
  void get_metrics(const std::shared_ptr<Exchange>& exchange);
  void get_models(const std::shared_ptr<Exchange>& exchange);
  void get_model(const std::shared_ptr<Exchange>& exchange);
  void get_architecture(const std::shared_ptr<Exchange>& exchange);
  void get_scheduler(const std::shared_ptr<Exchange>& exchange);
  void post_completions(const std::shared_ptr<Exchange>& exchange);
  void post_chat(const std::shared_ptr<Exchange>& exchange);
  void post_messages(const std::shared_ptr<Exchange>& exchange);
  void post_count_tokens(const std::shared_ptr<Exchange>& exchange);
  void post_inspect(const std::shared_ptr<Exchange>& exchange);
  void post_embeddings(const std::shared_ptr<Exchange>& exchange);
  void post_responses(const std::shared_ptr<Exchange>& exchange);
  void get_response(const std::shared_ptr<Exchange>& exchange);
  void delete_response(const std::shared_ptr<Exchange>& exchange);
  void post_cancel(const std::shared_ptr<Exchange>& exchange);
  void get_input_items(const std::shared_ptr<Exchange>& exchange);
  void post_tokenize(const std::shared_ptr<Exchange>& exchange);
  void post_detokenize(const std::shared_ptr<Exchange>& exchange);
  void post_apply_template(const std::shared_ptr<Exchange>& exchange);

  std::vector<std::shared_ptr<ServedModel>> models_;
  Metrics metrics_;
  std::shared_ptr<ResponseStore> responses_ = std::make_shared<ResponseStore>();
  std::atomic<bool> draining_{false};
  std::shared_ptr<WorkerPool> workers_;  ///< declared last, so destroyed first: its threads use the members above
};

}  // namespace lamina::serve
