#pragma once

#include "lamina/ops/norm/rms_norm.h"
#include "lamina/ops/position/rotary.h"

namespace lamina::ops {

/// QK norm and RoPE, fused: y = rotary(rms_norm(x, weight), cos, sin).
///   x         [batch, seq, heads, head_dim]   any floating type; may be a slice of a packed projection
///   weight    [head_dim]                      shared by the heads; any floating type, or undefined for no scale
///   cos, sin  as in rotary()
///   returns x's shape and type
/// If the GPU kernel supports the shape, x is read and y is written once, without intermediate rounding. Backward then
/// reads dy and x once; it needs x (if x is a slice, the whole packed tensor stays in memory) and 1/rms. Otherwise runs
/// the two operators one after the other, which rounds the norm to x's dtype.
///
/// Backward: rotates dy by the negative angle, then as in rms_norm().
Tensor norm_rotary(const Tensor& x, const Tensor& weight, const Tensor& cos, const Tensor& sin,
                   const RmsNormOptions& norm = {}, const RotaryOptions& rotation = {});

/// Result of norm_rotary_packed().
struct NormedHeads {
  Tensor q;  ///< [batch, seq, n_heads, head_dim], normalized and rotated
  Tensor k;  ///< [batch, seq, n_kv_heads, head_dim], likewise
  Tensor v;  ///< [batch, seq, n_kv_heads, head_dim], unchanged; may be a view
};

/// norm_rotary() for the queries and keys of a packed QKV projection:
///   qkv                 [batch, seq, n_heads + 2 n_kv_heads, head_dim]   queries, keys, values
///   q_weight, k_weight  [head_dim] or undefined
/// If the GPU kernel supports the shape, backward writes the gradients directly into the packed dqkv. Otherwise splits
/// qkv and calls norm_rotary() twice.
NormedHeads norm_rotary_packed(const Tensor& qkv, int64_t n_heads, int64_t n_kv_heads, const Tensor& q_weight,
                               const Tensor& k_weight, const Tensor& cos, const Tensor& sin,
                               const RmsNormOptions& norm = {}, const RotaryOptions& rotation = {});

}  // namespace lamina::ops
