#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lamina {

/// Statistics of an allocator, in bytes.
struct MemoryCounters {
  int64_t live = 0;         ///< currently allocated
  int64_t peak = 0;         ///< maximum of `live` since the last reset_peak
  int64_t reserved = 0;     ///< obtained from the system, live or cached
  int64_t allocations = 0;  ///< requests served
  int64_t cache_hits = 0;   ///< requests served from cached blocks
};

/// Source of device memory. Implementations are thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// Returns at least `bytes` bytes, aligned to 64; never null for bytes > 0. Throws Error if out of memory.
  virtual void* allocate(size_t bytes) = 0;
  virtual void deallocate(void* block, size_t bytes) noexcept = 0;
  /// Returns cached blocks to the system.
  virtual void trim() = 0;
  virtual MemoryCounters counters() const = 0;
  virtual void reset_peak() = 0;
};

/// Keeps freed blocks by size class and reuses them, so that a training step causes no page faults.
std::shared_ptr<Allocator> make_caching_cpu_allocator();
/// Updates counters like the caching allocator, but allocates no memory. For `meta` tensors.
std::shared_ptr<Allocator> make_counting_allocator();

}  // namespace lamina
