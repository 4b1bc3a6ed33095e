#include "lamina/tensor/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "lamina/base/error.h"

namespace lamina {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMost = size_t{1} << 62;

/// Sizes are rounded up to one of eight steps per power of two: at most 12.5 % is wasted and few classes exist.
size_t size_class(size_t bytes) {
  LAMINA_CHECK(bytes < kMost, "allocation of ", bytes, " bytes: no machine has that much; check the sizes");
  const size_t rounded = (std::max(bytes, kAlignment) + kAlignment - 1) / kAlignment * kAlignment;
  const size_t step = std::max(kAlignment, std::bit_floor(rounded) / 8);
  return (rounded + step - 1) / step * step;
}

class Counting : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    const std::lock_guard lock(mutex_);
    count_allocation(size_class(bytes));
    return nullptr;
  }
  void deallocate(void* /*block*/, size_t bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    counters_.live -= static_cast<int64_t>(size_class(bytes));
  }
  void trim() override {}
  MemoryCounters counters() const override {
    const std::lock_guard lock(mutex_);
    return counters_;
  }
  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    counters_.peak = counters_.live;
  }

 protected:
  void count_allocation(size_t bytes) {
    int64_t live = 0;
    LAMINA_CHECK(!__builtin_add_overflow(counters_.live, static_cast<int64_t>(bytes), &live), "allocation of ", bytes,
                 " bytes beside ", counters_.live, ": more than 2^63 bytes; check the sizes");
    counters_.live = live;
    counters_.peak = std::max(counters_.peak, counters_.live);
    ++counters_.allocations;
  }

  mutable std::mutex mutex_;
  MemoryCounters counters_;
};

class CachingCpu final : public Counting {
 public:
  CachingCpu() = default;
  CachingCpu(const CachingCpu&) = delete;
  CachingCpu& operator=(const CachingCpu&) = delete;
  ~CachingCpu() override { release_cached(); }

  void* allocate(size_t bytes) override {
    const size_t size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    std::vector<void*>& cached = free_[size];
    void* block = nullptr;
    if (!cached.empty()) {
      block = cached.back();
      cached.pop_back();
      ++counters_.cache_hits;
    } else {
      block = from_system(size);
      counters_.reserved += static_cast<int64_t>(size);
    }
    count_allocation(size);
    return block;
  }

  void deallocate(void* block, size_t bytes) noexcept override {
    const size_t size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    counters_.live -= static_cast<int64_t>(size);
    try {
      free_[size].push_back(block);
    } catch (const std::bad_alloc&) {  // no memory even for the note: give the block back at once
      std::free(block);                // NOLINT(cppcoreguidelines-no-malloc)
      counters_.reserved -= static_cast<int64_t>(size);
    }
  }

  void trim() override {
    const std::lock_guard lock(mutex_);
    release_cached();
  }

 private:
  void* from_system(size_t size) {
    void* block = try_system(size);
    if (block == nullptr) {
      release_cached();
      block = try_system(size);
    }
    LAMINA_CHECK(block != nullptr, "out of memory: ", size, " bytes wanted, ", counters_.live,
                 " bytes live; use a smaller batch or sequence, or checkpoint activations");
    return block;
  }

  static void* try_system(size_t size) {
    const size_t alignment = size >= kHugePage ? kHugePage : kAlignment;
    void* block = nullptr;
    if (posix_memalign(&block, alignment, size) != 0) return nullptr;
    if (size >= kHugePage) madvise(block, size, MADV_HUGEPAGE);  // a refusal costs speed only
    return block;
  }

  void release_cached() {
    for (auto& [size, blocks] : free_) {
      for (void* block : blocks) std::free(block);  // NOLINT(cppcoreguidelines-no-malloc)
      counters_.reserved -= static_cast<int64_t>(size * blocks.size());
      blocks.clear();
    }
  }

  std::map<size_t, std::vector<void*>> free_;
};

}  // namespace

std::shared_ptr<Allocator> make_caching_cpu_allocator() { return std::make_shared<CachingCpu>(); }
std::shared_ptr<Allocator> make_counting_allocator() { return std::make_shared<Counting>(); }

}  // namespace lamina
