#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace lamina {

/// A non-owning reference to a callable void(int64_t), cheaper than std::function. The callable must outlive it.
class TaskRef {
 public:
  template <class F, class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, TaskRef>>>
  // NOLINTNEXTLINE(google-explicit-constructor): a call site passes a lambda
  TaskRef(const F& fn)
      : object_(&fn), call_([](const void* object, int64_t task) { (*static_cast<const F*>(object))(task); }) {}
  void operator()(int64_t task) const { call_(object_, task); }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t);
};

/// The worker threads of one device, started on first use. A call from inside a task runs serially, so kernels may
/// nest. A call also runs serially while another thread's call is running. If a task throws, the caller receives the
/// exception after all tasks have ended.
class Threads {
 public:
  static constexpr int kMost = 1024;

  /// `count` 0 means OMP_NUM_THREADS if that is set, otherwise usable_cores(). More than kMost is an Error.
  explicit Threads(int count = 0);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  int count() const { return count_; }

  /// Calls body(task) for every task in [0, tasks). Tasks start one by one, in order. For tasks of uneven size, and
  /// tasks that wait for earlier ones.
  void tasks(int64_t tasks, TaskRef body) const;

  /// Calls body(begin, end) over consecutive ranges of [0, n). The boundaries depend only on n and grain, not on the
  /// number of threads, so a reduction per range is bit-identical on any machine.
  template <class F>
  void ranges(int64_t n, int64_t grain, const F& body) const {
    if (n <= 0) return;
    const int64_t step = std::max<int64_t>(grain, 1);
    if (n <= step) {
      body(int64_t{0}, n);
      return;
    }
    tasks((n + step - 1) / step, [&](int64_t task) { body(task * step, std::min(n, (task + 1) * step)); });
  }

 private:
  struct Pool;
  int count_;
  std::unique_ptr<Pool> pool_;
};

/// Number of rows of `width` elements per range, so that a range holds about `elements` elements.
inline int64_t rows_per_range(int64_t width, int64_t elements = 16384) {
  return std::max<int64_t>(1, elements / std::max<int64_t>(width, 1));
}

}  // namespace lamina
