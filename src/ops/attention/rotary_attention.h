#pragma once

#include "lamina/ops/attention/attention.h"
#include "lamina/ops/position/rotary.h"

namespace lamina::ops {

/// Rotation of the queries and keys of a packed QKV projection; see rotary().
struct HeadRotation {
  Tensor cos;             ///< as in rotary()
  Tensor sin;             ///< as in rotary()
  RotaryOptions options;  ///< of rotary()
};

/// attention() on a packed QKV projection whose queries and keys are rotated first:
///   qkv  [batch, seq, n_heads + 2 n_kv_heads, head_dim]   queries, keys, values; contiguous
///   returns [batch, seq, n_heads, head_dim]
/// Overwrites qkv (rotary_in_place), so nothing else may need its values. If the GPU has a fused backward for whole
/// heads, it also applies the inverse rotation to dq and dk.
Tensor rotary_attention(const Tensor& qkv, int64_t n_heads, int64_t n_kv_heads, const HeadRotation& rotation,
                        const AttentionOptions& options = {}, const AttentionExtras& extras = {});

}  // namespace lamina::ops
