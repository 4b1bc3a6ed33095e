#pragma once

#include "lamina/ops/attention/paged/paged_attention.h"
#include "lamina/ops/attention/paged/paged_cache_kernel.h"

namespace lamina::ops {

/// Kernel arguments. q and y are contiguous [tokens, heads, width]; options are resolved, extras are f32.
struct PagedDecode {
  Tensor q;
  PagedCache cache;  ///< contiguous
  PagedRows rows;    ///< contiguous tensors; if there are no host copies, every row has one token
  AttentionOptions options;
  AttentionExtras extras;
  Tensor y;
};
/// Kernel arguments: copies keys and values [first, first + k.dim(1)) of a row to k [1, keys, n_kv_heads, d_qk] and v
/// [1, keys, n_kv_heads, d_v], converted to their dtype. v is undefined if the cache has no values.
struct PagedGather {
  PagedCache cache;
  PagedRows rows;
  int64_t row = 0;
  int64_t first = 0;
  Tensor k;
  Tensor v;
};

namespace cpu {
void paged_gather(const PagedGather& args);
}  // namespace cpu
namespace cuda {
/// Attention of all rows with at most kMostPagedQueries new tokens. Unused rows become zero; other rows are not
/// written.
void paged_decode(const PagedDecode& args);
void paged_gather(const PagedGather& args);
}  // namespace cuda

}  // namespace lamina::ops
