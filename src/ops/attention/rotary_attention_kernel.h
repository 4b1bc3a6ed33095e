#pragma once

#include "lamina/ops/attention/attention_kernel.h"
#include "lamina/ops/attention/rotary_attention.h"

namespace lamina::ops {

/// Kernel arguments. q and k are rotated; dq and dk are the gradients of the unrotated queries and keys. cos and sin
/// are f32 [seq, head_dim / 2].
struct RotaryAttentionBackward {
  AttentionBackward attention;
  Tensor cos;
  Tensor sin;
};

namespace cuda {
/// Sets `known` to whether a fused backward can compute the gradients of the unrotated q and k. The pairing must be
/// half-split.
void has_rotary_backward(const AttentionForward& args, bool& known);
void rotary_attention_backward(const RotaryAttentionBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
