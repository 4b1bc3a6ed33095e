#pragma once

#include "lamina/ops/attention/attention.h"
#include "lamina/ops/position/rotary.h"

namespace lamina::ops {

/// Rotary embedding of the queries and keys of a packed QKV projection; see rotary().
struct HeadRotation {
  Tensor cos;             ///< as in rotary()
  Tensor sin;             ///< as in rotary()
  RotaryOptions options;  ///< as in rotary()
};

/// Rotates queries and keys of a packed QKV projection and computes attention():
///   qkv  [batch, seq, n_heads + 2 n_kv_heads, head_dim]   queries, keys, values; contiguous
///   returns [batch, seq, n_heads, head_dim]
/// Rotates qkv in place (rotary_in_place), so nothing else may need its old values. If the GPU has a fused backward for
/// whole heads, that kernel also applies the inverse rotation to dq and dk.
Tensor rotary_attention(const Tensor& qkv, int64_t n_heads, int64_t n_kv_heads, const HeadRotation& rotation,
                        const AttentionOptions& options = {}, const AttentionExtras& extras = {});

}  // namespace lamina::ops
