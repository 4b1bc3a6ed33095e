#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "lamina/serve/api/served_model.h"

namespace lamina::serve {

/// The backend of a model that generates no text, such as an encoder: a thread that runs tasks one after the other.
class TaskBackend final : public Backend {
 public:
  /// `refusal` ends the message to requests for text.
  TaskBackend(int64_t vocab_size, int64_t context, std::string refusal);
  /// Finishes the task in progress; tasks that have not started are destroyed.
  ~TaskBackend() override;

  /// Throws ApiError.
  infer::RequestId submit(infer::Request request, infer::Listener listener) override;
  void cancel(infer::RequestId /*id*/) override {}
  /// Throws QueueFull if infer::EngineThread::kMaxTasks wait.
  void post(std::function<void()> task) override;
  infer::EngineStats stats() const override { return {}; }
  std::vector<infer::RunningAnswer> running() const override { return {}; }
  const infer::CacheShape& shape() const override { return shape_; }

 private:
  void run();

  infer::CacheShape shape_;
  std::string refusal_;
  std::mutex mutex_;  ///< guards what follows
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lamina::serve
