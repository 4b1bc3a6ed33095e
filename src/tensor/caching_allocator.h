#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "lamina/tensor/allocator.h"

namespace lamina {

/// Sizes are rounded up to one of eight steps per power of two: at most 12.5 % is wasted and few classes exist.
size_t size_class(size_t bytes);

/// Counts what it hands out.
class CountedAllocator : public Allocator {
 public:
  MemoryCounters counters() const override;
  void reset_peak() override;

 protected:
  void count_allocation(size_t bytes);

  mutable std::mutex mutex_;
  MemoryCounters counters_;
};

/// Keeps freed blocks by size class and hands them out again. A subclass says where blocks come from, and calls trim()
/// in its destructor.
class CachingAllocator : public CountedAllocator {
 public:
  void* allocate(size_t bytes) override;
  void deallocate(void* block, size_t bytes) noexcept override;
  void trim() override;

 protected:
  /// Null when the system has none.
  virtual void* take(size_t size) = 0;
  virtual void give_back(void* block) noexcept = 0;
  /// What the memory is called in messages.
  virtual const char* place() const = 0;

  /// Takes a block from the system, giving cached ones back where it has none.
  void* from_system(size_t size);
  void release_cached() noexcept;

  using Blocks = std::map<size_t, std::vector<void*>>;
  Blocks free_;
};

}  // namespace lamina
