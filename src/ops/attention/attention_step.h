#pragma once

#include "lamina/ops/attention/attention_decode.h"
#include "lamina/ops/position/rotary.h"

namespace lamina::ops {

/// Rotary embedding of the query and key heads in a decoding step, as in rotary(). If the tables are undefined, nothing
/// is rotated.
struct StepRotation {
  Tensor cos;                                         ///< [positions, rotary_dim/2] or [positions, rotary_dim]
  Tensor sin;                                         ///< like cos
  RotaryPairing pairing = RotaryPairing::half_split;  ///< which elements form a pair
  int64_t rotary_dim = 0;                             ///< 0: the whole head
  /// [batch] i64: position of each row's token. Undefined: its index in the cache.
  Tensor positions;
};

/// Attention in a decoding step with one new token per row. Rotates queries and keys of the packed QKV projection,
/// stores key and value in the KV caches, and attends to all keys stored so far.
///   qkv      [batch, 1, n_heads + 2 n_kv_heads, d]: queries, keys, values; not modified
///   k_cache, v_cache [batch, n_kv_heads, capacity, d], written; u8 caches need scales (cache_scales.h), also written
///   places   [batch] i64: cache index of each row's token; all earlier entries are in use
///   returns  [batch, 1, n_heads, d], dtype of qkv
/// Equivalent to rotary() of queries and keys, cache_store() at `places` and attention_decode() with lengths places +
/// 1. On a GPU it takes one launch if head_dim is a multiple of 8 and at most 256, and the rotated halves or pairs are
/// aligned likewise. All state that changes per step is in device memory, so a captured CUDA graph stays valid. No
/// gradient.
Tensor attention_step(const Tensor& qkv, const Tensor& k_cache, const Tensor& v_cache, const Tensor& places,
                      const StepRotation& rotation = {}, const AttentionOptions& options = {},
                      const AttentionExtras& extras = {}, const CacheScales& scales = {});

}  // namespace lamina::ops
