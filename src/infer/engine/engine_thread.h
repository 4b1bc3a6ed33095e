#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "lamina/infer/engine/engine.h"

namespace lamina::infer {

/// Collects the updates of one request for a consumer on another thread. Never blocks the engine: updates that the
/// consumer has not taken are merged, so there is at most one per answer, and the size is bounded by the answers'
/// length.
class UpdateQueue {
 public:
  /// Adds an update; to be called by the Listener. Returns false after close(), which cancels the answer.
  bool push(const Update& update);
  /// The next update, or nothing after `seconds` without one. The update with `request_done` is the last.
  std::optional<Update> pop(double seconds);
  /// Tells the engine that the consumer is gone.
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Update> updates_;
  bool closed_ = false;
};

/// Owns an Engine and the thread that runs it. Any thread may call its methods.
class EngineThread {
 public:
  /// Starts the thread. The arguments are those of Engine.
  explicit EngineThread(std::unique_ptr<StepRunner> runner, EngineOptions options = {},
                        std::unique_ptr<StepRunner> draft = {});
  /// Cancels everything that runs, then ends the thread.
  ~EngineThread();

  /// See Engine::submit. The engine's thread calls the listener.
  RequestId submit(Request request, Listener listener);
  /// Submits a request whose updates arrive in the returned queue. Closing the queue cancels the request.
  std::shared_ptr<UpdateQueue> submit(Request request);
  void cancel(RequestId id);  ///< see Engine::cancel
  /// Runs `task` on the engine's thread between two steps, for other uses of the runner's model. At most one task runs
  /// between two steps. The task must not throw; its exceptions are dropped. Throws QueueFull if kMaxTasks tasks wait.
  /// Tasks that have not started when the engine ends are destroyed.
  void post(std::function<void()> task);
  EngineStats stats() const;  ///< state after the last step
  /// See Engine::running. At most kRowsInterval older than stats().
  std::vector<RunningAnswer> running() const;
  const CacheShape& shape() const { return shape_; }  ///< cache shape of the runner

  static constexpr size_t kMaxTasks = 64;        ///< see post()
  static constexpr double kRowsInterval = 0.05;  ///< in seconds

 private:
  struct Submission {
    RequestId id;
    Request request;
    Listener listener;
  };

  void run();
  bool take_inbox(bool idle);
  void publish(bool idle);
  void run_task();

  const EngineOptions options_;
  Engine engine_;  ///< used only by the thread
  const CacheShape shape_;
  mutable std::mutex mutex_;  ///< guards the members below
  std::condition_variable wake_;
  std::vector<Submission> inbox_;
  std::vector<RequestId> cancels_;
  std::deque<std::function<void()>> tasks_;
  EngineStats stats_;
  std::vector<RunningAnswer> running_;
  std::chrono::steady_clock::time_point running_at_;  ///< time when running_ was copied
  int64_t rejected_ = 0;
  RequestId last_id_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lamina::infer
