#pragma once

#include <condition_variable>
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
  explicit EngineThread(std::unique_ptr<StepRunner> runner, EngineOptions options = {});
  /// Cancels everything that runs and ends the thread.
  ~EngineThread();

  /// As Engine::submit. The listener is called from the engine's thread.
  RequestId submit(Request request, Listener listener);
  /// Updates arrive in the returned queue. Closing the queue cancels the request.
  std::shared_ptr<UpdateQueue> submit(Request request);
  void cancel(RequestId id);
  EngineStats stats() const;
  const CacheShape& shape() const { return shape_; }

 private:
  void run();

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Engine engine_;
  const CacheShape shape_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lamina::infer
