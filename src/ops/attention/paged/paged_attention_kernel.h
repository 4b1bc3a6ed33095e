#pragma once

#include "lamina/ops/attention/paged/paged_attention.h"
#include "lamina/ops/attention/paged/paged_cache_kernel.h"

namespace lamina::ops {

/// Kernel arguments: q and y are contiguous [tokens, heads, width]; options are resolved, extras f32.
struct PagedDecode {
  Tensor q;
  PagedCache cache;  ///< contiguous
  PagedRows rows;    ///< contiguous tensors; without host copies every row has one token
  AttentionOptions options;
  AttentionExtras extras;
  Tensor y;
};
/// Copies keys [first, first + k.dim(1)) of a row to k [1, keys, n_kv_heads, d_qk] and v [1, keys, n_kv_heads, d_v], in
/// their dtype; v is undefined if the cache has no values.
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
/// All rows with at most kMostPagedQueries new tokens; other rows are left alone. Zeros for unused rows.
void paged_decode(const PagedDecode& args);
void paged_gather(const PagedGather& args);
}  // namespace cuda

}  // namespace lamina::ops
