#include "lamina/serve/api/worker_pool.h"

#include <chrono>
#include <utility>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace lamina::serve {
namespace {

constexpr std::chrono::seconds kTrimDelay{5};

/// Returns freed memory to the system; called after kTrimDelay without a task. Compiling a large schema briefly needs
/// tens of megabytes.
void trim_heap() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

}  // namespace

WorkerPool::WorkerPool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void WorkerPool::run() {
  std::unique_lock lock(mutex_);
  const auto woken = [&] { return stop_ || !tasks_.empty(); };
  while (true) {
    if (!wake_.wait_for(lock, kTrimDelay, woken)) {
      const bool trims = std::exchange(used_, false);
      lock.unlock();
      if (trims) trim_heap();
      lock.lock();
      wake_.wait(lock, woken);
    }
    if (stop_) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    used_ = true;
    lock.unlock();
    task();
    task = {};
    lock.lock();
  }
}

}  // namespace lamina::serve
