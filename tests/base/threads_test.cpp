#include "lamina/base/threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "lamina/base/cores.h"
#include "lamina/base/error.h"
#include "lamina/base/task_phases.h"
#include "support/close.h"

namespace lamina {
namespace {

TEST(threads, EveryTaskRunsOnce) {
  for (const int count : {1, 2, 3, 8}) {
    const Threads threads(count);
    EXPECT_EQ(threads.count(), count);
    for (const int64_t tasks : {-3, 0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(std::max<int64_t>(tasks, 0)));
      threads.tasks(tasks, [&](int64_t task) { ++seen[static_cast<size_t>(task)]; });
      for (const auto& times : seen) EXPECT_EQ(times.load(), 1);
    }
  }
}

TEST(threads, RangesCoverEverythingAndCutBySizeOnly) {
  for (const int64_t n : {0, 1, 15, 16, 17, 1000}) {
    for (const int64_t grain : {-1, 0, 1, 16, 5000}) {
      std::vector<std::vector<std::pair<int64_t, int64_t>>> cuts;
      for (const int count : {1, 2, 3}) {
        std::mutex mutex;
        std::vector<std::pair<int64_t, int64_t>> ranges;
        Threads(count).ranges(n, grain, [&](int64_t begin, int64_t end) {
          const std::lock_guard lock(mutex);
          ranges.emplace_back(begin, end);
        });
        std::sort(ranges.begin(), ranges.end());
        int64_t covered = 0;
        for (const auto& [begin, end] : ranges) {
          EXPECT_EQ(begin, covered);
          EXPECT_LT(begin, end);
          covered = end;
        }
        EXPECT_EQ(covered, n);
        cuts.push_back(ranges);
      }
      EXPECT_EQ(cuts[0], cuts[1]);
      EXPECT_EQ(cuts[0], cuts[2]);
    }
  }
}

TEST(threads, AnExceptionReachesTheCallerAndTheThreadsLiveOn) {
  for (const int count : {1, 2, 4}) {
    const Threads threads(count);
    for (int round = 0; round < 3; ++round) {
      testing::expect_error(
          [&] {
            threads.tasks(100, [](int64_t task) {
              if (task == 37) throw Error("task 37");
            });
          },
          "task 37");
      EXPECT_THROW(threads.tasks(10, [](int64_t) { throw std::out_of_range("all"); }), std::out_of_range);
      std::atomic<int> ran{0};
      threads.tasks(50, [&](int64_t) { ++ran; });
      EXPECT_EQ(ran.load(), 50);
    }
  }
}

TEST(threads, TasksAreEndedWhenTheExceptionArrives) {
  for (const int count : {1, 3}) {
    const Threads threads(count);
    std::atomic<int> running{0};
    try {
      threads.tasks(64, [&](int64_t task) {
        ++running;
        if (task == 0) {
          --running;
          throw Error("first");
        }
        std::this_thread::yield();
        --running;
      });
      ADD_FAILURE() << "no exception";
    } catch (const Error&) {
    }
    EXPECT_EQ(running.load(), 0);
  }
}

TEST(threads, NestedCallsRunSerially) {
  const Threads threads(3);
  const Threads others(2);
  std::vector<std::atomic<int>> seen(20 * 30);
  threads.tasks(20, [&](int64_t outer) {
    const auto caller = std::this_thread::get_id();
    const Threads& inner = outer % 2 == 0 ? threads : others;
    inner.tasks(30, [&](int64_t task) {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      ++seen[static_cast<size_t>(outer * 30 + task)];
    });
  });
  for (const auto& times : seen) EXPECT_EQ(times.load(), 1);
}

TEST(threads, AnExceptionInANestedCallReachesTheOutermostCaller) {
  const Threads threads(2);
  testing::expect_error(
      [&] { threads.tasks(8, [&](int64_t) { threads.tasks(8, [](int64_t) { throw Error("inner"); }); }); }, "inner");
  // Top-level calls run in parallel again afterwards.
  std::atomic<int> ran{0};
  threads.tasks(8, [&](int64_t) { ++ran; });
  EXPECT_EQ(ran.load(), 8);
}

TEST(threads, ManyCallersShareOnePool) {
  const Threads threads(2);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        threads.tasks(50, [&](int64_t task) { sum += task; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum.load(), 4 * 20 * (49 * 50 / 2));
}

TEST(threads, ACallDuringAnotherThreadsCallDoesNotWaitForIt) {
  const Threads threads(2);
  std::atomic<bool> second_call_is_done{false};
  std::atomic<int> inside{0};
  std::thread other([&] {
    while (inside.load() == 0) std::this_thread::yield();
    threads.tasks(10, [](int64_t) {});
    second_call_is_done = true;
  });
  threads.tasks(2, [&](int64_t) {
    ++inside;
    while (!second_call_is_done.load()) std::this_thread::yield();
  });
  other.join();
  EXPECT_EQ(inside.load(), 2);
}

TEST(threads, AForkedProcessWithoutWorkersRunsEveryTask) {
  const Threads threads(3);
  threads.tasks(10, [](int64_t) {});  // the workers are running
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    std::atomic<int> ran{0};
    threads.tasks(100, [&](int64_t) { ++ran; });
    ::_exit(ran.load() == 100 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

TEST(threads, ManyShortRoundsRunEveryTask) {
  const Threads threads(4);
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 5000; ++round) threads.tasks(1 + round % 6, [&](int64_t) { ++sum; });
  EXPECT_EQ(sum.load(), 5000 / 6 * 21 + 1 + 2);
}

TEST(threads, TheDefaultCountIsThatOfTheEnvironment) {
  const char* before = std::getenv("OMP_NUM_THREADS");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("OMP_NUM_THREADS", "5", 1);
  EXPECT_EQ(Threads().count(), 5);
  ::setenv("OMP_NUM_THREADS", "3,2", 1);  // OpenMP: a number for each level of nesting
  EXPECT_EQ(Threads().count(), 3);
  ::setenv("OMP_NUM_THREADS", "many", 1);
  EXPECT_EQ(Threads().count(), usable_cores());
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(Threads().count(), usable_cores());
  if (before != nullptr) ::setenv("OMP_NUM_THREADS", kept.c_str(), 1);
}

TEST(threads, RefusesANegativeOrAbsurdCount) {
  testing::expect_error([] { const Threads threads(-1); }, "expected 0 (all cores) or a positive number");
  testing::expect_error([] { const Threads threads(Threads::kMost + 1); }, "up to 1024");
  EXPECT_GE(Threads().count(), 1);
}

TEST(threads, SecondPhaseStartsAfterTheFirst) {
  for (const int count : {1, 2, 5}) {
    const Threads threads(count);
    for (int round = 0; round < 200; ++round) {
      std::atomic<int> first{0};
      std::atomic<int> second{0};
      std::atomic<int> early{0};
      const auto begin = [&](int64_t /*task*/) { ++first; };
      const auto end = [&](int64_t task) {
        if (first != 3) ++early;
        second += static_cast<int>(task);
      };
      run_phases(threads, {3, begin}, {7, end, [](int64_t /*task*/) {}});
      EXPECT_EQ(early, 0);
      EXPECT_EQ(second, 21);
    }
  }
}

TEST(threads, AThrowingFirstPhaseEndsBoth) {
  const Threads threads(3);
  const auto fails = [](int64_t /*task*/) { throw std::runtime_error("first"); };
  const auto idle = [](int64_t /*task*/) {};
  EXPECT_THROW(run_phases(threads, {2, fails}, {4, idle, idle}), std::runtime_error);
}

}  // namespace
}  // namespace lamina
