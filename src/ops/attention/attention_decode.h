#pragma once

#include "lamina/ops/attention/attention.h"
#include "lamina/ops/attention/cache_scales.h"

namespace lamina::ops {

/// attention() of few queries against a long cache, for generation: the work is split along the cache, so that all
/// threads have some at batch 1, and each key and value is read once for all the query heads that share it.
///   q        [batch, seq_q, n_heads, d_qk]            seq_q of 1 up to some sixteen
///   k_cache  [batch, n_kv_heads, capacity, d_qk]      the keys of a head lie one behind the other
///   v_cache  [batch, n_kv_heads, capacity, d_v]
///   lengths  [batch] i32 or i64: keys in use per row, the new queries' own among them; 0, or seq_q up to capacity
///   scales   of u8 caches (cache_scales.h)
///   returns  [batch, seq_q, n_heads, d_v], q's type; f32 (f64) inside.
/// Query i of row b stands at position lengths[b] − seq_q + i. The caches may be narrower than q (bf16 beside f32), or
/// of 8 bits beside all but f64: a key's scale multiplies its score, a value's its weight. Options and extras as in
/// attention(), but for dropout and document_starts, which are refused. No gradient.
Tensor attention_decode(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache, const Tensor& lengths,
                        const AttentionOptions& options = {}, const AttentionExtras& extras = {},
                        const CacheScales& scales = {});

/// What the kernel is given: q and y in the accumulation type and lengths in i64 on the cpu, as the caller has them on
/// cuda; all dense.
struct AttentionDecode {
  Tensor q;
  Tensor k_cache;
  Tensor v_cache;
  Tensor lengths;
  AttentionOptions options;
  AttentionExtras extras;
  CacheScales scales;
  Tensor y;
};

namespace cpu {
void attention_decode(const AttentionDecode& args);
}  // namespace cpu
namespace cuda {
void attention_decode(const AttentionDecode& args);
}  // namespace cuda

}  // namespace lamina::ops
