// The same interface over std::thread. ThreadSanitizer cannot see into the OpenMP run time; it sees all of this.
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "lamina/base/cores.h"
#include "lamina/base/error.h"
#include "lamina/base/threads.h"

namespace lamina {
namespace {
thread_local bool inside_task = false;  // read and written by its own thread alone
}  // namespace

struct Threads::Pool {
  std::mutex caller;  // one parallel region at a time
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable finished;
  std::vector<std::thread> workers;
  const TaskRef* body = nullptr;
  std::atomic<int64_t> next{0};
  int64_t tasks = 0;
  uint64_t round = 0;
  int busy = 0;
  bool stopping = false;
  std::exception_ptr failure;

  void drain() {
    inside_task = true;
    for (int64_t task = next++; task < tasks; task = next++) {
      try {
        (*body)(task);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    }
    inside_task = false;
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  void work() {
    uint64_t seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return stopping || round != seen; });
      if (stopping) return;
      seen = round;
      lock.unlock();
      drain();
      lock.lock();
      if (--busy == 0) finished.notify_one();
    }
  }
};

Threads::Threads(int count) : count_(count == 0 ? usable_cores() : count), pool_(std::make_unique<Pool>()) {
  LAMINA_CHECK(count >= 0 && count <= kMost, "threads: ", count,
               " given; expected 0 (all cores) or a positive number up to ", kMost);
  try {
    for (int i = 1; i < count_; ++i) pool_->workers.emplace_back([pool = pool_.get()] { pool->work(); });
  } catch (const std::system_error& failure) {
    pool_->stop();
    throw Error(str("threads: the system refused the ", pool_->workers.size() + 1, "th of ", count_,
                    " threads: ", failure.what(), "; ask for fewer"));
  }
}

Threads::~Threads() { pool_->stop(); }

void Threads::tasks(int64_t tasks, TaskRef body) const {
  if (count_ == 1 || tasks <= 1 || inside_task) {
    for (int64_t task = 0; task < tasks; ++task) body(task);
    return;
  }
  Pool& pool = *pool_;
  const std::lock_guard one_caller(pool.caller);
  {
    const std::lock_guard lock(pool.mutex);
    pool.body = &body;
    pool.tasks = tasks;
    pool.next = 0;
    pool.busy = static_cast<int>(pool.workers.size());
    pool.failure = nullptr;
    ++pool.round;
  }
  pool.wake.notify_all();
  pool.drain();
  std::unique_lock lock(pool.mutex);
  pool.finished.wait(lock, [&] { return pool.busy == 0; });
  if (pool.failure) std::rethrow_exception(pool.failure);
}

}  // namespace lamina
