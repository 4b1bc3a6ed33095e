#pragma once

#include "lamina/ops/attention/attention.h"
#include "lamina/ops/position/rotary.h"

namespace lamina::ops {

/// How the queries and keys of a joined projection are rotated; see rotary().
struct HeadRotation {
  Tensor cos;
  Tensor sin;
  RotaryOptions options;
};

/// attention() on a joined projection whose queries and keys are rotated first:
///   qkv  [batch, seq, n_heads + 2 n_kv_heads, head_dim]   queries, keys, values; dense
///   returns [batch, seq, n_heads, head_dim]
/// Composed of rotary_in_place and attention, so that nothing else may need the values of qkv. Where a GPU has a kernel
/// for all gradients of whole heads, it rotates them back on their way out.
Tensor rotary_attention(const Tensor& qkv, int64_t n_heads, int64_t n_kv_heads, const HeadRotation& rotation,
                        const AttentionOptions& options = {}, const AttentionExtras& extras = {});

/// What the kernel is given: q, k and their gradients are rotated and unrotated, cos and sin [seq, head_dim / 2] of
/// f32.
struct RotaryAttentionBackward {
  AttentionBackward attention;
  Tensor cos;
  Tensor sin;
};

namespace cuda {
/// Whether there is a kernel for the gradients of q and k before they were rotated, half with half.
void knows_rotated_gradients(const AttentionForward& args, bool& known);
void rotary_attention_backward(const RotaryAttentionBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
