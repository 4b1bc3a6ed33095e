#pragma once

#include "lamina/ops/attention/attention_decode.h"
#include "lamina/ops/attention/paged/paged_cache.h"

namespace lamina::ops {

/// A row with up to this many new tokens uses the decoding kernel, which reads keys and values from the pages.
constexpr int64_t kMostPagedQueries = 16;

/// Attention over a paged KV cache: the new tokens of a ragged batch attend to all tokens of their rows, including
/// themselves. paged_store() must have stored the new tokens.
///   q        [tokens, n_heads, d_qk]
///   fresh_k  [tokens, n_kv_heads, d_qk], fresh_v [tokens, n_kv_heads, d_v]: keys and values of the new tokens, as
///            passed to paged_store(); fresh_v is undefined if the cache has no values
///   d_v      width of the values; needed because a cache of latents (MLA) has no `v`
///   returns  [tokens, n_heads, d_v], dtype of q; zeros for unused rows and tokens after the last row. Accumulates in
///            f32 (f64 for f64)
/// Query i of a row's n new tokens is at position length − n + i. There are three kinds of rows, which run different
/// kernels:
///   - up to kMostPagedQueries new tokens: flash decoding over the pages
///   - more, and all tokens of the row are new: attention() of q, fresh_k and fresh_v; adjacent rows share one launch
///   - more, with a cached prefix: the visible pages are gathered into a contiguous buffer, then attention()
/// No buffer grows with queries × keys. Options and extras are as in attention_decode(). No gradient.
Tensor paged_attention(const Tensor& q, const Tensor& fresh_k, const Tensor& fresh_v, const PagedCache& cache,
                       const PagedRows& rows, int64_t d_v, const AttentionOptions& options = {},
                       const AttentionExtras& extras = {});

}  // namespace lamina::ops
