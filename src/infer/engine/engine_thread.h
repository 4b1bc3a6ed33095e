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

/// Collects the updates of one request for a consumer on another thread. Never blocks the engine: updates that were not
/// taken yet are merged, so at most one per answer is kept. Its size is bounded by the answer's length.
class UpdateQueue {
 public:
  /// Adds an update; returns false once closed, which cancels the answer. This is the Listener's side.
  bool push(const Update& update);
  /// The next update, or nothing after `seconds`. After the update with `request_done` there are no more.
  std::optional<Update> pop(double seconds);
  /// The consumer is gone.
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Update> updates_;
  bool closed_ = false;
};

/// Owns an Engine and the thread that runs it. All methods may be called from any thread.
class EngineThread {
 public:
  /// Starts the thread; arguments as for Engine.
  explicit EngineThread(std::unique_ptr<StepRunner> runner, EngineOptions options = {},
                        std::unique_ptr<StepRunner> draft = {});
  /// Cancels everything that runs and ends the thread.
  ~EngineThread();

  /// As Engine::submit. The listener is called from the engine's thread.
  RequestId submit(Request request, Listener listener);
  /// Updates arrive in the returned queue. Closing the queue cancels the request.
  std::shared_ptr<UpdateQueue> submit(Request request);
  void cancel(RequestId id);  ///< as Engine::cancel
  /// Runs `task` on the engine's thread between two steps, for other uses of the runner's model. At most one task runs
  /// between two steps. The task must not throw; its exceptions are dropped. Throws QueueFull if kMaxTasks wait. Tasks
  /// that have not started when the engine ends are destroyed.
  void post(std::function<void()> task);
  EngineStats stats() const;  ///< as of the last step
  /// As Engine::running, at most kRowsInterval older than stats().
  std::vector<RunningAnswer> running() const;
  const CacheShape& shape() const { return shape_; }  ///< of the runner

  static constexpr size_t kMaxTasks = 64;        ///< see post()
  static constexpr double kRowsInterval = 0.05;  ///< seconds

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
  Engine engine_;  ///< used by the thread alone
  const CacheShape shape_;
  mutable std::mutex mutex_;  ///< guards what follows
  std::condition_variable wake_;
  std::vector<Submission> inbox_;
  std::vector<RequestId> cancels_;
  std::deque<std::function<void()>> tasks_;
  EngineStats stats_;
  std::vector<RunningAnswer> running_;
  std::chrono::steady_clock::time_point running_at_;  ///< when running_ was taken
  int64_t rejected_ = 0;
  RequestId last_id_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lamina::infer
