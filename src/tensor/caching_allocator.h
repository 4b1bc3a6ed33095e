#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "lamina/tensor/allocator.h"

namespace lamina {

/// Rounds up to one of eight steps per power of two. Wastes at most 12.5 %, with few size classes.
size_t size_class(size_t bytes);

/// Base class that maintains the counters.
class CountedAllocator : public Allocator {
 public:
  MemoryCounters counters() const override;
  void reset_peak() override;

 protected:
  void count_allocation(size_t bytes);

  mutable std::mutex mutex_;
  MemoryCounters counters_;
};

/// Keeps freed blocks by size class and reuses them. A subclass provides the memory, and must call trim() in its
/// destructor.
class CachingAllocator : public CountedAllocator {
 public:
  void* allocate(size_t bytes) override;
  void deallocate(void* block, size_t bytes) noexcept override;
  void trim() override;

 protected:
  /// Takes memory from the system. Null if the system has none left.
  virtual void* take(size_t size) = 0;
  virtual void give_back(void* block) noexcept = 0;
  /// Name of the memory in error messages.
  virtual const char* place() const = 0;

  /// Takes a block from the system. If the system is out of memory, releases the cached blocks and tries again.
  void* from_system(size_t size);
  void release_cached() noexcept;

  using Blocks = std::map<size_t, std::vector<void*>>;
  Blocks free_;
};

}  // namespace lamina
