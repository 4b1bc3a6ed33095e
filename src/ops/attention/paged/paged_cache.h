#pragma once

#include <vector>

#include "lamina/ops/attention/cache_scales.h"

namespace lamina::ops {

/// The KV cache of one layer, divided into pages of `page_size` tokens (a power of two, at least 16). A sequence owns
/// pages instead of a range of memory. So it grows without reserving memory, and sequences can share the pages of a
/// common prefix (PagedAttention, Kwon et al. 2023, arXiv:2309.06180).
struct PagedCache {
  Tensor k;            ///< [pages, n_kv_heads, page_size, d_qk], floating or u8
  Tensor v;            ///< [pages, n_kv_heads, page_size, d_v]; undefined: the values are the first d_v elements of the
                       ///< keys (latents of MLA)
  CacheScales scales;  ///< f32 [pages, n_kv_heads, page_size] for u8 caches; scales.v is undefined if v is

  /// Number of tokens per page.
  int64_t page_size() const { return k.dim(2); }
};

/// Which tokens of a step belong to which sequence (a row), and which pages hold the sequence. A step is a ragged
/// batch: the new tokens of all rows, concatenated without padding.
struct PagedRows {
  Tensor tables;  ///< [rows, width] i32: entry p is the page that holds tokens [p · page_size, (p + 1) · page_size) of
                  ///< the row; −1: not held, because the tokens have left the attention window. May be a slice of wider
                  ///< tables.
  Tensor lengths;  ///< [rows] i32: number of tokens of the row, including the new ones; 0: unused row
  Tensor starts;   ///< [rows + 1] i32: the new tokens of row r are [starts[r], starts[r + 1])
  /// Host copies of lengths and starts, for devices whose memory the host cannot read. If both are empty (CUDA graph
  /// capture), every row must have exactly one new token: starts is 0, 1, 2, …
  std::vector<int32_t> host_lengths;
  std::vector<int32_t> host_starts;

  int64_t rows() const { return tables.dim(0); }
  /// Number of entries from one row of the tables to the next.
  int64_t table_stride() const { return tables.dim(0) <= 1 ? tables.dim(1) : tables.strides()[0]; }
  /// Number of tokens for which a page table has entries.
  int64_t capacity(int64_t page_size) const { return tables.dim(1) * page_size; }
};

/// Stores the keys and values of new tokens in the pages of their rows, in place, converted to the cache's dtype or
/// quantized to 8 bits. Token i of a row's n new tokens goes to index length − n + i of the row.
///   k  [tokens, n_kv_heads, d_qk], v [tokens, n_kv_heads, d_v]: any floating type; slices of a packed QKV projection
///      need no copy; v is undefined if the cache has no values
/// Rows of length 0 and tokens after the last row are not stored. On a GPU the kernel reads tables, lengths and starts,
/// so a captured CUDA graph stays valid while they change. There a token without a page is reported as a Fault and not
/// written. No gradient.
void paged_store(const PagedCache& cache, const PagedRows& rows, const Tensor& k, const Tensor& v);

}  // namespace lamina::ops
