#pragma once

#include "lamina/ops/attention/attention.h"
#include "lamina/ops/attention/cache_scales.h"

namespace lamina::ops {

/// attention() of few queries against a long KV cache, for generation. The work is split along the cache (flash
/// decoding), so all threads are busy even at batch 1; each key and value is read once for all query heads that share
/// it.
///   q        [batch, seq_q, n_heads, d_qk]            seq_q from 1 to about 16
///   k_cache  [batch, n_kv_heads, capacity, d_qk]      the keys of a head are contiguous
///   v_cache  [batch, n_kv_heads, capacity, d_v]
///   lengths  [batch] i32 or i64: keys in use per row, including those of the new queries; 0, or seq_q to capacity
///   scales   of u8 caches (cache_scales.h)
///   returns  [batch, seq_q, n_heads, d_v], dtype of q; accumulates in f32 (f64 for f64).
/// Query i of row b is at position lengths[b] − seq_q + i. The caches may be narrower than q (bf16 with f32), or 8 bits
/// wide unless q is f64: the scale of a key multiplies its score, that of a value its weight. Options and extras are as
/// in attention(), except that dropout and document_starts are rejected. No gradient.
Tensor attention_decode(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache, const Tensor& lengths,
                        const AttentionOptions& options = {}, const AttentionExtras& extras = {},
                        const CacheScales& scales = {});

/// Kernel arguments, all contiguous. On the CPU q and y are in the accumulation type and lengths in i64; on CUDA they
/// keep the caller's dtypes. With `tables` (CPU only, i32 [batch, any]) the caches are pages [pages, n_kv_heads,
/// page_size, width] and `v_cache` may be `k_cache`: the values are then the first columns of the keys.
struct AttentionDecode {
  Tensor q;
  Tensor k_cache;
  Tensor v_cache;
  Tensor lengths;
  AttentionOptions options;
  AttentionExtras extras;
  CacheScales scales;
  Tensor y;
  Tensor tables;  ///< page tables, or undefined
};

namespace cpu {
void attention_decode(const AttentionDecode& args);
}  // namespace cpu
namespace cuda {
void attention_decode(const AttentionDecode& args);
}  // namespace cuda

}  // namespace lamina::ops
