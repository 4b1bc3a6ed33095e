#pragma once

#include <atomic>
#include <memory>

#include "lamina/serve/api/served_model.h"
#include "lamina/serve/http/exchange.h"

namespace lamina::serve {

/// A request that runs code on the model between two engine steps, instead of generating. Ends when its client
/// disconnects.
class ModelTask : public std::enable_shared_from_this<ModelTask> {
 public:
  explicit ModelTask(std::shared_ptr<Exchange> client) : exchange(std::move(client)) {}
  virtual ~ModelTask() = default;
  ModelTask(const ModelTask&) = delete;
  ModelTask& operator=(const ModelTask&) = delete;

 protected:
  /// Calls `work` between two steps of the engine of `served`. If `work` throws, the client receives the error. Throws
  /// ApiError if the model does not support this, and QueueFull.
  void between_steps(const std::shared_ptr<ServedModel>& served, std::function<void(nn::Model&)> work);
  /// Calls `work` on this thread. If it throws, the client receives the error as its response.
  void guard(const std::function<void()>& work);
  /// Ends the task when the client disconnects. Call once.
  void watch_client();
  bool is_cancelled() const { return cancelled_; }

  std::shared_ptr<Exchange> exchange;

 private:
  std::atomic<bool> cancelled_{false};
};

}  // namespace lamina::serve
