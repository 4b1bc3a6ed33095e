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
  /// Drops waiting tasks and waits for those that run.
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
  bool used_ = false;  ///< a task ran since the heap was trimmed
  std::vector<std::thread> threads_;
};

/// Runs a task on a worker, or drops it if the service has ended.
using PostToWorker = std::function<void(std::function<void()>)>;

}  // namespace lamina::serve
