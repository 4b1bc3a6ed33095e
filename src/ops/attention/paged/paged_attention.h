#pragma once

#include "lamina/ops/attention/attention_decode.h"
#include "lamina/ops/attention/paged/paged_cache.h"

namespace lamina::ops {

/// Rows with up to this many new tokens use the decoding kernel, which reads keys and values from the pages.
constexpr int64_t kMostPagedQueries = 16;

/// Attention of the new tokens of a ragged batch over everything their rows hold, including themselves.
///   q        [tokens, n_heads, d_qk]
///   fresh_k  [tokens, n_kv_heads, d_qk], fresh_v [tokens, n_kv_heads, d_v]: the keys and values of the new tokens, as
///            passed to paged_store() before; fresh_v is undefined if the cache has no values
///   d_v      width of the values; given because a cache of latents has no `v`
///   returns  [tokens, n_heads, d_v], dtype of q; zeros for unused rows and tokens after the last row; accumulates in
///            f32 (f64 for f64)
/// Query i of a row's n new tokens is at position length − n + i. Three kinds of rows run different kernels:
///   - up to kMostPagedQueries new tokens: flash decoding over the pages
///   - more, all of the row's tokens new: attention() of q, fresh_k and fresh_v; adjacent rows share one launch
///   - more, with a cached prefix: the visible pages are gathered into a contiguous buffer, then attention()
/// No buffer grows with queries × keys. Options and extras as in attention_decode(). No gradient.
Tensor paged_attention(const Tensor& q, const Tensor& fresh_k, const Tensor& fresh_v, const PagedCache& cache,
                       const PagedRows& rows, int64_t d_v, const AttentionOptions& options = {},
                       const AttentionExtras& extras = {});

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
