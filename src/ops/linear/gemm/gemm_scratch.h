#pragma once

#include <hwy/aligned_allocator.h>

#include <cstddef>
#include <cstdint>

#include "lamina/base/error.h"

namespace lamina::ops {

/// Buffers that a product needs: packed panels, a block of C if C is not stored as a whole, and partial sums for
/// split-k.
enum class GemmScratch : uint8_t { rows, shared_rows, columns, block, stripe, parts, count };

/// Thread-local memory for `elements` of T, aligned for vectors. It is kept between calls, because allocating fresh
/// pages for every product would cost as much as a small product. Valid until the thread requests the same slot again.
template <class T>
T* gemm_scratch(GemmScratch slot, int64_t elements) {
  struct Buffer {
    hwy::AlignedFreeUniquePtr<uint8_t[]> memory;
    size_t bytes = 0;
  };
  static thread_local Buffer buffers[static_cast<size_t>(GemmScratch::count)];
  Buffer& buffer = buffers[static_cast<size_t>(slot)];
  const size_t bytes = static_cast<size_t>(elements) * sizeof(T);
  if (buffer.bytes < bytes) {
    buffer.memory = hwy::AllocateAligned<uint8_t>(bytes);
    buffer.bytes = buffer.memory ? bytes : 0;
    LAMINA_CHECK(buffer.memory, "out of memory: a product needs ", bytes, " bytes for its packed panels");
  }
  return reinterpret_cast<T*>(buffer.memory.get());
}

}  // namespace lamina::ops
