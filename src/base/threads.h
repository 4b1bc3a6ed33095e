#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace lamina {

/// A borrowed callable void(int64_t), cheaper than std::function. Must not outlive what it was made from.
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

/// The worker threads of one device, started by the first call that needs them. Calls from inside a task run serially,
/// so kernels may nest; so does a call while another thread's call is running. An exception thrown by a task reaches
/// the caller once all tasks have ended.
class Threads {
 public:
  static constexpr int kMost = 1024;

  /// `count` 0 means OMP_NUM_THREADS if it is set, else the cores this process may use. More than kMost is an error.
  explicit Threads(int count = 0);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  int count() const { return count_; }

  /// body(task) for every task in [0, tasks), started in order, one by one: for tasks of uneven size, or tasks that
  /// wait for earlier ones.
  void tasks(int64_t tasks, TaskRef body) const;

  /// body(begin, end) over consecutive ranges of [0, n). Where the ranges are cut depends on n and grain only,
  /// never on the number of threads, so that a reduction per range gives the same bits on any machine.
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

/// Grain for rows of `width` elements so that a range holds about `elements` of them.
inline int64_t rows_per_range(int64_t width, int64_t elements = 16384) {
  return std::max<int64_t>(1, elements / std::max<int64_t>(width, 1));
}

}  // namespace lamina
