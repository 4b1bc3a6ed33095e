#pragma once

// Page tables on the device. Shared by the kernels for paged KV caches.

#include <bit>

#include "lamina/ops/attention/cuda/device.cuh"
#include "lamina/ops/attention/paged/paged_cache_kernel.h"

namespace lamina::ops::cuda {

/// The tensors of PagedRows, and the shape of the pages.
struct PageRows {
  const int32_t* tables;
  const int32_t* lengths;
  const int32_t* starts;
  int64_t table_stride;
  int rows;
  int width;  ///< number of entries of a row's table that may be used
  int pages;
  int page_bits;  ///< log2 of the page size
  int n_kv_heads;
  bool one_each;  ///< every row has exactly one token; starts is not read

  /// Returns the position of a token in its row, and the row. Negative if the row is unused or the token belongs to no
  /// row. `found` is shared memory. All threads of the block must call it with the same token.
  __device__ int position_of(int token, int* found, int& row) const {
    row = token;
    if (!one_each) {
      if (threadIdx.x == 0) *found = -1;
      __syncthreads();
      for (int r = static_cast<int>(threadIdx.x); r < rows; r += static_cast<int>(blockDim.x)) {
        if (starts[r] <= token && token < starts[r + 1]) *found = r;
      }
      __syncthreads();
      row = *found;
    }
    if (row < 0 || row >= rows || lengths[row] == 0) return -1;
    return lengths[row] - (one_each ? 1 : starts[row + 1] - token);
  }
  /// The page that holds a position of a row, or −1 if there is none.
  __device__ int page_of(int row, int position) const {
    const int entry = position >> page_bits;
    if (position < 0 || entry >= width) return -1;
    const int page = tables[row * table_stride + entry];
    return page < pages ? max(page, -1) : -1;
  }
  /// Index of a position in an array [pages, n_kv_heads, page_size].
  __device__ int64_t entry(int page, int kv_head, int position) const {
    return ((static_cast<int64_t>(page) * n_kv_heads + kv_head) << page_bits) + (position & ((1 << page_bits) - 1));
  }
};

inline PageRows page_rows(const PagedCache& cache, const PagedRows& rows) {
  bool one_each = true;  // true if there are no host copies, see PagedRows
  for (size_t r = 0; r < rows.host_starts.size(); ++r) one_each &= rows.host_starts[r] == static_cast<int32_t>(r);
  return {.tables = rows.tables.data<int32_t>(),
          .lengths = rows.lengths.data<int32_t>(),
          .starts = rows.starts.data<int32_t>(),
          .table_stride = rows.table_stride(),
          .rows = narrow(rows.rows()),
          .width = narrow(rows.tables.dim(1)),
          .pages = narrow(cache.k.dim(0)),
          .page_bits = std::countr_zero(static_cast<uint64_t>(cache.page_size())),
          .n_kv_heads = narrow(cache.k.dim(1)),
          .one_each = one_each};
}

/// kCount elements, moved with accesses of at most 16 bytes.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount > 16 ? 16 : sizeof(T) * kCount) PageColumns {
  T values[kCount];
};

/// True if rows of `width` elements at `pointer`, with these strides, can be read in groups of kCount columns.
template <class T, int kCount>
bool fits_columns(const void* pointer, int64_t width, std::initializer_list<int64_t> strides) {
  constexpr int64_t kAlign = alignof(PageColumns<T, kCount>);
  bool fits = width % kCount == 0 && reinterpret_cast<uintptr_t>(pointer) % kAlign == 0;
  for (const int64_t stride : strides) fits &= stride * static_cast<int64_t>(sizeof(T)) % kAlign == 0;
  return fits;
}

}  // namespace lamina::ops::cuda
