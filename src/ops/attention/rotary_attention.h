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

/// Kernel arguments: q and k are rotated, dq and dk are with respect to the unrotated ones; cos and sin are f32 [seq,
/// head_dim / 2].
struct RotaryAttentionBackward {
  AttentionBackward attention;
  Tensor cos;
  Tensor sin;
};

namespace cuda {
/// Sets `known` if a fused backward can return gradients of the unrotated q and k (half-split pairing).
void has_rotary_backward(const AttentionForward& args, bool& known);
void rotary_attention_backward(const RotaryAttentionBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
