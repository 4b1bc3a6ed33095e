#include "lamina/tensor/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <utility>

#include "lamina/base/error.h"
#include "lamina/tensor/caching_allocator.h"

namespace lamina {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMost = size_t{1} << 62;

class CachingCpu final : public CachingAllocator {
 public:
  CachingCpu() = default;
  CachingCpu(const CachingCpu&) = delete;
  CachingCpu& operator=(const CachingCpu&) = delete;
  ~CachingCpu() override { release_cached(); }

 private:
  void* take(size_t size) override {
    const size_t alignment = size >= kHugePage ? kHugePage : kAlignment;
    void* block = nullptr;
    if (posix_memalign(&block, alignment, size) != 0) return nullptr;
    if (size >= kHugePage) madvise(block, size, MADV_HUGEPAGE);  // best effort: failure only costs speed
    return block;
  }
  void give_back(void* block) noexcept override { std::free(block); }  // NOLINT(cppcoreguidelines-no-malloc)
  const char* place() const override { return ""; }
};

class CountingAllocator final : public CountedAllocator {
 public:
  void* allocate(size_t bytes) override {
    const size_t size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    count_allocation(size);
    int64_t& cached = free_[size];
    if (cached > 0) {
      --cached;
      ++counters_.cache_hits;
    } else {
      reserve(static_cast<int64_t>(size));
    }
    return nullptr;
  }
  void deallocate(void* /*block*/, size_t bytes) noexcept override {
    const size_t size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    counters_.live -= static_cast<int64_t>(size);
    ++free_[size];
  }
  void trim() override {
    const std::lock_guard lock(mutex_);
    release_free_blocks();
  }

 private:
  void release_free_blocks() {
    for (auto& [size, blocks] : free_) counters_.reserved -= static_cast<int64_t>(size) * std::exchange(blocks, 0);
  }
  /// Counts `size` more reserved bytes. If the total would exceed 2^63, releases the free blocks first, as the caching
  /// allocators do on a full device. The remaining blocks are live; count_allocation() has checked their sum.
  void reserve(int64_t size) {
    int64_t total = 0;
    if (__builtin_add_overflow(counters_.reserved, size, &total)) {
      release_free_blocks();
      total = counters_.reserved + size;
    }
    counters_.reserved = total;
  }

  std::map<size_t, int64_t> free_;  // size class → number of free blocks
};

}  // namespace

size_t size_class(size_t bytes) {
  LAMINA_CHECK(bytes < kMost, "allocation of ", bytes, " bytes: too large for any machine; check the tensor sizes");
  const size_t rounded = (std::max(bytes, kAlignment) + kAlignment - 1) / kAlignment * kAlignment;
  const size_t step = std::max(kAlignment, std::bit_floor(rounded) / 8);
  return (rounded + step - 1) / step * step;
}

MemoryCounters CountedAllocator::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void CountedAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  counters_.peak = counters_.live;
}

void CountedAllocator::count_allocation(size_t bytes) {
  int64_t live = 0;
  LAMINA_CHECK(!__builtin_add_overflow(counters_.live, static_cast<int64_t>(bytes), &live), "allocation of ", bytes,
               " bytes in addition to ", counters_.live, ": more than 2^63 bytes; check the sizes");
  counters_.live = live;
  counters_.peak = std::max(counters_.peak, counters_.live);
  ++counters_.allocations;
}

void* CachingAllocator::allocate(size_t bytes) {
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
  }
  count_allocation(size);
  return block;
}

void CachingAllocator::deallocate(void* block, size_t bytes) noexcept {
  const size_t size = size_class(bytes);
  const std::lock_guard lock(mutex_);
  counters_.live -= static_cast<int64_t>(size);
  try {
    free_[size].push_back(block);
  } catch (const std::bad_alloc&) {  // no memory for the list entry: free the block instead
    give_back(block);
    counters_.reserved -= static_cast<int64_t>(size);
  }
}

void CachingAllocator::trim() {
  const std::lock_guard lock(mutex_);
  release_cached();
}

void* CachingAllocator::from_system(size_t size) {
  void* block = take(size);
  if (block == nullptr) {
    release_cached();
    block = take(size);
  }
  LAMINA_CHECK(block != nullptr, "out of ", place(), "memory: ", size, " bytes requested, ", counters_.live,
               " bytes live; use a smaller batch or sequence, or activation checkpointing");
  counters_.reserved += static_cast<int64_t>(size);
  return block;
}

void CachingAllocator::release_cached() noexcept {
  for (auto& [size, blocks] : free_) {
    for (void* block : blocks) give_back(block);
    counters_.reserved -= static_cast<int64_t>(size * blocks.size());
    blocks.clear();
  }
}

std::shared_ptr<Allocator> make_caching_cpu_allocator() { return std::make_shared<CachingCpu>(); }
std::shared_ptr<Allocator> make_counting_allocator() { return std::make_shared<CountingAllocator>(); }

}  // namespace lamina
