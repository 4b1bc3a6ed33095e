#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lamina {

/// What an allocator has handed out and holds, in bytes.
struct MemoryCounters {
  int64_t live = 0;         ///< handed out now
  int64_t peak = 0;         ///< most that was ever live at once since the last reset_peak
  int64_t reserved = 0;     ///< taken from the system, live or cached
  int64_t allocations = 0;  ///< requests served
  int64_t cache_hits = 0;   ///< of these, served without asking the system
};

/// Source of device memory. Implementations are safe to call from several threads.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// At least `bytes` bytes aligned to 64; never null for bytes > 0. Throws Error when the memory cannot be had.
  virtual void* allocate(size_t bytes) = 0;
  virtual void deallocate(void* block, size_t bytes) noexcept = 0;
  /// Gives cached blocks back to the system.
  virtual void trim() = 0;
  virtual MemoryCounters counters() const = 0;
  virtual void reset_peak() = 0;
};

/// Keeps freed blocks in size classes and hands them out again: a training step then touches no fresh pages.
std::shared_ptr<Allocator> make_caching_cpu_allocator();
/// Counts like the caching allocator and hands out no memory: for `meta` tensors.
std::shared_ptr<Allocator> make_counting_allocator();

}  // namespace lamina
