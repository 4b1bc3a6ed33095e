#pragma once

#include "lamina/ops/attention/cache_scales.h"

namespace lamina::ops {

/// Appends keys and values of new tokens to a KV cache, in place, converted to its dtype or quantized to 8 bits.
///   k_cache  [batch, n_kv_heads, capacity, d_qk], v_cache [batch, n_kv_heads, capacity, d_v]: the last dimension is
///            contiguous; batch rows may be views of a larger cache
///   k        [batch, seq, n_kv_heads, d_qk], v [batch, seq, n_kv_heads, d_v]: any floating type; slices of a packed
///            QKV projection need no copy
///   places   [batch] i64: token s of row b is stored at index places[b] + s
///   scales   for 8-bit (u8) caches (cache_scales.h); also written
/// v_cache and v may both be undefined, for a cache that stores one vector per token (as for multi-head latent
/// attention). On a GPU the kernel reads the places, so a captured CUDA graph stays valid while they change. There a
/// row that does not fit is reported as a Fault and not written. No gradient.
void cache_store(const Tensor& k_cache, const Tensor& v_cache, const Tensor& k, const Tensor& v, const Tensor& places,
                 const CacheScales& scales = {});

}  // namespace lamina::ops
