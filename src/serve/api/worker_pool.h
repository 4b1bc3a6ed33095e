#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lamina::serve {

/// Threads for work that must not delay the network thread: JSON, templates, tokenizing, grammars.
class WorkerPool {
 public:
  explicit WorkerPool(int threads);
  /// Drops queued tasks and waits for running ones.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  void post(std::function<void()> task);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  bool used_ = false;  ///< a task has run since the last trim_heap()
  std::vector<std::thread> threads_;
};

/// Runs a task on a worker. Drops it if the service no longer exists.
using PostToWorker = std::function<void(std::function<void()>)>;

}  // namespace lamina::serve
