#pragma once

#include "lamina/ops/attention/attention.h"
#include "lamina/ops/attention/cache_scales.h"

namespace lamina::ops {

/// attention() of few queries over a long KV cache, for decoding. The work is split along the cache (flash decoding),
/// so all threads are busy even for batch 1. Each key and value is read once for all query heads that share it.
///   q        [batch, seq_q, n_heads, d_qk]            seq_q from 1 to about 16
///   k_cache  [batch, n_kv_heads, capacity, d_qk]      the keys of each KV head are contiguous
///   v_cache  [batch, n_kv_heads, capacity, d_v]
///   lengths  [batch] i32 or i64: number of keys in use per row, including those of the new queries; 0, or seq_q to
///            capacity
///   scales   for 8-bit (u8) caches, see cache_scales.h
///   returns  [batch, seq_q, n_heads, d_v], dtype of q; accumulates in f32 (f64 for f64).
/// Query i of row b is at position lengths[b] − seq_q + i. The caches may be narrower than q (bf16 with f32), or 8 bits
/// wide unless q is f64. In an 8-bit cache the scale of a key multiplies its score, and that of a value its weight.
/// Options and extras are as in attention(), except that dropout and document_starts are rejected. No gradient.
Tensor attention_decode(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache, const Tensor& lengths,
                        const AttentionOptions& options = {}, const AttentionExtras& extras = {},
                        const CacheScales& scales = {});

}  // namespace lamina::ops
