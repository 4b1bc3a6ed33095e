#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "lamina/base/threads.h"

namespace lamina {

/// Tasks that may run in parallel.
struct FirstPhase {
  int64_t tasks;
  TaskRef body;
};
/// Tasks that start after those of the first phase.
struct SecondPhase {
  int64_t tasks;
  TaskRef body;
  TaskRef prepare;  ///< prepare(task) runs before body(task) would wait, to prefetch what it reads
};

/// The tasks of a phase that have not ended.
class PhaseTasks {
 public:
  explicit PhaseTasks(int64_t tasks = 0) : left_(static_cast<uint32_t>(tasks)) {}
  void end_task() {
    if (--left_ == 0) left_.notify_all();
  }
  bool ended() const { return left_.load() == 0; }
  /// A bounded spin, then a futex wait, as between two parallel regions.
  void wait() const {
    constexpr std::chrono::microseconds kSpin{200};
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 1; !ended(); ++i) {
      if (i % 1024 == 0 && std::chrono::steady_clock::now() - begin > kSpin) break;
    }
    for (uint32_t left = left_.load(); left != 0; left = left_.load()) left_.wait(left);
  }

 private:
  alignas(64) std::atomic<uint32_t> left_;
};

/// Runs two phases one after the other in a single parallel region. Threads that wait for the first one to end prepare
/// their task of the second one meanwhile.
inline void run_phases(const Threads& threads, const FirstPhase& first, const SecondPhase& second) {
  PhaseTasks running(first.tasks);
  threads.tasks(first.tasks + second.tasks, [&](int64_t task) {
    if (task < first.tasks) {
      struct End {
        PhaseTasks& tasks;
        ~End() { tasks.end_task(); }
      } const end{running};  // also if the task throws
      return first.body(task);
    }
    // Tasks start in order, so all tasks of the first phase have started.
    if (!running.ended()) {
      second.prepare(task - first.tasks);
      running.wait();
    }
    second.body(task - first.tasks);
  });
}

}  // namespace lamina
