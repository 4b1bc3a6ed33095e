#pragma once

#include "lamina/ops/attention/attention_decode.h"
#include "lamina/ops/position/rotary.h"

namespace lamina::ops {

/// How the query and key heads of a step are turned, as by rotary(); without tables they are not.
struct StepRotation {
  Tensor cos;  ///< [positions, rotary_dim/2] or [positions, rotary_dim]
  Tensor sin;
  RotaryPairing pairing = RotaryPairing::half_split;
  int64_t rotary_dim = 0;  ///< 0: the whole head
  /// [batch] i64: the position of each row's token, where it is not its place in the cache.
  Tensor positions;
};

/// One new token a row, from its joined projection to what its heads saw: queries and keys are rotated, key and value
/// put into the caches, and the queries attend to all that is there then.
///   qkv      [batch, 1, n_heads + 2 n_kv_heads, d]: queries, keys, values; stays as it is
///   k_cache, v_cache [batch, n_kv_heads, capacity, d], scales of u8 caches (cache_scales.h): written
///   places   [batch] i64: where each row's token goes; those before it are in use
///   returns  [batch, 1, n_heads, d], qkv's type
/// The same as rotary() of queries and keys, cache_store() at places and attention_decode() with lengths places + 1;
/// on a GPU one launch, where heads are whole packs of eight columns, at most 256, and so are the halves or pairs that
/// are rotated. Everything that changes from step to step is in the device's memory: a recording stays right. No
/// gradient.
Tensor attention_step(const Tensor& qkv, const Tensor& k_cache, const Tensor& v_cache, const Tensor& places,
                      const StepRotation& rotation = {}, const AttentionOptions& options = {},
                      const AttentionExtras& extras = {}, const CacheScales& scales = {});

/// What the kernel is given: the arguments of attention_decode, q being the first heads of the joined projection and
/// `lengths` the places in i64; tables dense in f32, positions defined where there are tables.
struct AttentionStep {
  AttentionDecode decode;
  StepRotation rotation;
};

namespace cuda {
void attention_step(const AttentionStep& args);
}  // namespace cuda

}  // namespace lamina::ops
