#pragma once

#include "lamina/ops/attention/cache_scales.h"

namespace lamina::ops {

/// Puts keys and values of new tokens behind those of a cache, in place, converted to the cache's type or rounded to 8
/// bits.
///   k_cache  [batch, n_kv_heads, capacity, d_qk], v_cache [batch, n_kv_heads, capacity, d_v]: rows may be views of a
///            larger cache; the last dimension is dense
///   k        [batch, seq, n_kv_heads, d_qk], v [batch, seq, n_kv_heads, d_v]: any floating type, slices of a joined
///            projection as they lie
///   places   [batch] i64: where row b's first token goes; token s goes to places[b] + s
///   scales   of u8 caches (cache_scales.h), written too
/// v_cache and v may both be undefined: a cache that holds one thing per token. On a GPU the kernel reads the places,
/// so that a recorded graph stays right while they change; a row that does not fit is reported and not written. No
/// gradient flows through a cache.
void cache_store(const Tensor& k_cache, const Tensor& v_cache, const Tensor& k, const Tensor& v, const Tensor& places,
                 const CacheScales& scales = {});

/// What the kernel is given: k and v with a dense last dimension, places dense.
struct CacheStore {
  Tensor k_cache;
  Tensor v_cache;
  Tensor k;
  Tensor v;
  Tensor places;
  CacheScales scales;
};

namespace cpu {
void cache_store(const CacheStore& args);
}  // namespace cpu
namespace cuda {
void cache_store(const CacheStore& args);
}  // namespace cuda

}  // namespace lamina::ops
