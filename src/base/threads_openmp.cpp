#include <omp.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>

#include "lamina/base/cores.h"
#include "lamina/base/error.h"
#include "lamina/base/threads.h"

namespace lamina {
namespace {

int default_count() { return std::getenv("OMP_NUM_THREADS") != nullptr ? omp_get_max_threads() : usable_cores(); }

}  // namespace

struct Threads::Pool {};

Threads::Threads(int count) : count_(count == 0 ? default_count() : count) {
  LAMINA_CHECK(count >= 0 && count <= kMost, "threads: ", count,
               " given; expected 0 (all cores) or a positive number up to ", kMost);
}

Threads::~Threads() = default;

void Threads::tasks(int64_t tasks, TaskRef body) const {
  if (count_ == 1 || tasks <= 1 || omp_in_parallel() != 0) {
    for (int64_t task = 0; task < tasks; ++task) body(task);
    return;
  }
  std::exception_ptr failure;
  std::mutex mutex;
  std::atomic<int64_t> next{0};  // tasks start in order: one may wait for those before it
  const int threads = static_cast<int>(std::min<int64_t>(count_, tasks));
#pragma omp parallel num_threads(threads)
  for (int64_t task = next++; task < tasks; task = next++) {
    try {
      body(task);
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lamina
