// One worker pool per Threads object. A parallel region is a round: the caller opens the gate, runs tasks together with
// the workers that enter, closes the gate when no task is left, and waits only for workers inside. A worker that the OS
// has not scheduled in time costs nothing, because the caller runs its tasks.
//
// Waiting is a bounded spin, then a futex wait. The spin covers the gaps between the operators of a training step, so
// workers start at once on an idle machine. On a busy machine, a spinning thread may occupy the core that the thread it
// waits for needs; sleeping after kSpin frees that core. tools/bench-threads measures both.
#include "lamina/base/threads.h"

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "lamina/base/cores.h"
#include "lamina/base/error.h"

namespace lamina {
namespace {

thread_local bool inside_task = false;

constexpr std::chrono::microseconds kSpin{200};

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits until `ready` accepts the value of `word`, then returns that value.
template <class Ready>
uint32_t await(const std::atomic<uint32_t>& word, const Ready& ready) {
  const auto begin = std::chrono::steady_clock::now();
  uint32_t value = word.load();
  for (int i = 1; !ready(value); value = word.load()) {
    pause();
    if (++i % 64 == 0 && std::chrono::steady_clock::now() - begin > kSpin) break;
  }
  for (; !ready(value); value = word.load()) word.wait(value);
  return value;
}

int default_count() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  int count = 0;
  if (text != nullptr)
    std::from_chars(text, text + std::strlen(text), count);  // "4,2": one count per nesting level, outermost first
  return count > 0 ? std::min(count, Threads::kMost) : usable_cores();
}

}  // namespace

struct Threads::Pool {
  // The gate is one word: round number in the upper bits, an open flag, and the number of workers inside.
  static constexpr uint32_t kInside = 0x7FF;
  static constexpr uint32_t kOpen = 0x800;
  static constexpr uint32_t kRound = 0x1000;
  static_assert(kMost <= kInside);

  std::mutex caller;  // locked during a round
  std::vector<std::thread> workers;
  alignas(64) std::atomic<uint32_t> gate{0};
  alignas(64) std::atomic<int64_t> next{0};
  alignas(64) std::atomic<uint32_t> emptied{0};  // how often the last worker has left a closed gate
  std::atomic<bool> stopping{false};
  std::atomic<uint32_t> wanted{0};  // number of workers that a round can use; more would only contend for the gate
  const TaskRef* body = nullptr;
  int64_t tasks = 0;
  std::mutex failed;
  std::exception_ptr failure;

  void drain() {
    inside_task = true;
    for (int64_t task = next++; task < tasks; task = next++) {
      try {
        (*body)(task);
      } catch (...) {
        const std::lock_guard lock(failed);
        failure = std::current_exception();
      }
    }
    inside_task = false;
  }

  /// Opens the gate for up to `most` workers.
  void open(int64_t most) {
    const auto all = static_cast<int64_t>(workers.size());
    wanted = static_cast<uint32_t>(std::min(most, all));
    const uint32_t round = gate.load() / kRound + 1;
    gate.store(round * kRound + kOpen);
    if (most >= all) {
      gate.notify_all();
    } else {
      for (int64_t i = 0; i < most; ++i) gate.notify_one();
    }
  }

  /// Closes the gate and waits for the workers inside.
  void close() {
    const uint32_t before = emptied.load();
    if ((gate.fetch_and(~kOpen) & kInside) != 0) await(emptied, [&](uint32_t value) { return value != before; });
  }

  void work() {
    uint32_t seen = 0;
    while (true) {
      uint32_t value =
          await(gate, [&](uint32_t now) { return stopping || ((now & kOpen) != 0 && now / kRound != seen); });
      if (stopping) return;
      seen = value / kRound;
      bool joined = false;
      while ((value & kOpen) != 0 && (value & kInside) < wanted && value / kRound == seen && !joined) {
        joined = gate.compare_exchange_weak(value, value + 1);
      }
      if (!joined) continue;
      drain();
      if ((--gate & (kOpen | kInside)) == 0) {
        ++emptied;
        emptied.notify_one();
      }
    }
  }

  void start(int count) {
    try {
      for (int i = 1; i < count; ++i) workers.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      const size_t started = workers.size();
      stop();
      throw Error(str("threads: the system refused the ", started + 2, "th of ", count, " threads: ", error.what(),
                      "; ask for fewer with --threads"));
    }
  }

  void stop() {
    stopping = true;
    open(static_cast<int64_t>(workers.size()));
    for (std::thread& worker : workers) worker.join();
    workers.clear();
    close();
    stopping = false;
  }
};

Threads::Threads(int count) : count_(count == 0 ? default_count() : count), pool_(std::make_unique<Pool>()) {
  LAMINA_CHECK(count >= 0 && count <= kMost, "threads: ", count,
               " given; expected 0 (all cores) or a positive number up to ", kMost);
}

Threads::~Threads() { pool_->stop(); }

void Threads::tasks(int64_t tasks, TaskRef body) const {
  Pool& pool = *pool_;
  std::unique_lock round(pool.caller, std::defer_lock);
  if (count_ == 1 || tasks <= 1 || inside_task || !round.try_lock()) {
    for (int64_t task = 0; task < tasks; ++task) body(task);
    return;
  }
  if (pool.workers.empty()) pool.start(count_);
  pool.body = &body;
  pool.tasks = tasks;
  pool.next = 0;
  pool.failure = nullptr;
  pool.open(tasks - 1);
  pool.drain();
  pool.close();
  if (pool.failure) std::rethrow_exception(pool.failure);
}

}  // namespace lamina
