#pragma once

#include "lamina/ops/norm/rms_norm.h"
#include "lamina/ops/position/rotary.h"

namespace lamina::ops {

/// The norm of queries or keys and their rotation: y = rotary(rms_norm(x, weight), cos, sin).
///   x         [batch, seq, heads, head_dim]   any floating type; may be a slice of a joined projection
///   weight    [head_dim]                      shared by the heads; any floating type, or undefined for no scale
///   cos, sin  as rotary() takes them
///   returns x's shape and type
/// Composed of the two operators, which round the norm to x's type. Where a GPU's kernel takes the shape, x is read and
/// y written once, nothing is rounded in between, and backward reads dy and x once; it keeps x (of a slice: the whole
/// it lies in) and 1/rms.
///
/// Backward: dy is rotated back, then see rms_norm().
Tensor norm_rotary(const Tensor& x, const Tensor& weight, const Tensor& cos, const Tensor& sin,
                   const RmsNormOptions& norm = {}, const RotaryOptions& rotation = {});

struct NormedHeads {
  Tensor q;  ///< [batch, seq, n_heads, head_dim], normed and rotated
  Tensor k;  ///< [batch, seq, n_kv_heads, head_dim], the same
  Tensor v;  ///< [batch, seq, n_kv_heads, head_dim], as they are; may be a view
};

/// The same for the queries and keys of a joined projection:
///   qkv                 [batch, seq, n_heads + 2 n_kv_heads, head_dim]   queries, keys, values
///   q_weight, k_weight  [head_dim] or undefined
/// Composed of split and two calls of the above. With a GPU's kernel, gradients are put where the projection's are.
NormedHeads norm_rotary_joined(const Tensor& qkv, int64_t n_heads, int64_t n_kv_heads, const Tensor& q_weight,
                               const Tensor& k_weight, const Tensor& cos, const Tensor& sin,
                               const RmsNormOptions& norm = {}, const RotaryOptions& rotation = {});

/// What the kernels are given: heads in whole packs of 16 bytes, pairs of packs of which are rotated or not, tables of
/// one angle per pair. Tensors of heads have their tokens at one distance.
struct NormRotaryForward {
  RotaryArgs turn;  ///< with x and y
  Tensor scale;     ///< [head_dim], f32 or x's type, or undefined
  double eps;
  Tensor r;  ///< [batch · seq · heads], 1/rms, f32
};
struct NormRotaryBackward {
  RotaryArgs turn;  ///< with x
  Tensor scale;
  Tensor r;
  Tensor dy;
  Tensor dx;
  Tensor dweight;  ///< [head_dim], f32, or undefined
};

namespace cuda {
void norm_rotary_forward(const NormRotaryForward& args);
void norm_rotary_backward(const NormRotaryBackward& args);
}  // namespace cuda

}  // namespace lamina::ops
