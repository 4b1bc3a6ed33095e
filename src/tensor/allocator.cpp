#include "lamina/tensor/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <utility>

#include "lamina/base/error.h"
#include "lamina/tensor/caching_allocator.h"

namespace lamina {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMost = size_t{1} << 62;

/// A range of huge pages from which blocks are cut. A block alone would need a huge page of its own, and smaller pages
/// cost address translations: products that stream weights lose a third of their speed.
class HugePages {
 public:
  static constexpr size_t kBytes = size_t{32} << 20;

  /// Null if the system has no memory.
  static std::unique_ptr<HugePages> make() {
    void* memory = nullptr;
    if (posix_memalign(&memory, kHugePage, kBytes) != 0) return nullptr;
    madvise(memory, kBytes, MADV_HUGEPAGE);  // best effort: failure only costs speed
    return std::unique_ptr<HugePages>(new HugePages(static_cast<char*>(memory)));
  }
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;
  ~HugePages() { std::free(memory_); }  // NOLINT(cppcoreguidelines-no-malloc)

  bool contains(const void* block) const {
    return std::less_equal<>()(memory_, static_cast<const char*>(block)) &&
           std::less<>()(static_cast<const char*>(block), memory_ + kBytes);
  }
  bool empty() const { return blocks_.empty(); }

  /// Cuts a block, a multiple of the page size, from the first free range that is large enough. Null if there is none.
  void* cut(size_t size) {
    for (auto range = free_.begin(); range != free_.end(); ++range) {
      const auto [at, length] = *range;
      if (length < size) continue;
      blocks_.emplace(at, size);
      if (length > size) free_.emplace(at + size, length - size);
      free_.erase(range);
      return memory_ + at;
    }
    return nullptr;
  }

  void put_back(void* block) noexcept {
    auto range = blocks_.extract(static_cast<size_t>(static_cast<char*>(block) - memory_));
    madvise(block, range.mapped(), MADV_DONTNEED);
    const auto above = free_.find(range.key() + range.mapped());
    if (above != free_.end()) {
      range.mapped() += above->second;
      free_.erase(above);
    }
    const auto next = free_.lower_bound(range.key());
    if (next != free_.begin() && std::prev(next)->first + std::prev(next)->second == range.key()) {
      std::prev(next)->second += range.mapped();
    } else {
      free_.insert(std::move(range));
    }
  }

 private:
  explicit HugePages(char* memory) : memory_(memory) {}

  char* memory_;
  std::map<size_t, size_t> blocks_;             // offset → size
  std::map<size_t, size_t> free_{{0, kBytes}};  // offset → size
};

class CachingCpu final : public CachingAllocator {
 public:
  CachingCpu() = default;
  CachingCpu(const CachingCpu&) = delete;
  CachingCpu& operator=(const CachingCpu&) = delete;
  ~CachingCpu() override { release_cached(); }

 private:
  void* take(size_t size) override {
    if (size >= kLeastCut && size <= kMostCut) return cut(size);
    const size_t alignment = size >= kHugePage ? kHugePage : kAlignment;
    void* block = nullptr;
    if (posix_memalign(&block, alignment, size) != 0) return nullptr;
    if (size >= kHugePage) madvise(block, size, MADV_HUGEPAGE);  // best effort: failure only costs speed
    return block;
  }
  void* cut(size_t size) {
    for (const auto& pages : huge_) {
      if (void* block = pages->cut(size)) return block;
    }
    std::unique_ptr<HugePages> pages = HugePages::make();
    if (pages == nullptr) return nullptr;
    huge_.push_back(std::move(pages));
    return huge_.back()->cut(size);
  }
  void give_back(void* block) noexcept override {
    const auto found =
        std::find_if(huge_.begin(), huge_.end(), [&](const auto& pages) { return pages->contains(block); });
    if (found == huge_.end()) return std::free(block);  // NOLINT(cppcoreguidelines-no-malloc)
    (*found)->put_back(block);
    if ((*found)->empty()) huge_.erase(found);
  }
  const char* place() const override { return ""; }

  static constexpr size_t kLeastCut = size_t{64} << 10;      // of this size on, classes are multiples of 8 KiB
  static constexpr size_t kMostCut = HugePages::kBytes / 4;  // larger blocks waste little of their last huge page
  std::vector<std::unique_ptr<HugePages>> huge_;
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
