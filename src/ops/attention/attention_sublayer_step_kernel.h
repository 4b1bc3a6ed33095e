#pragma once

#include "lamina/ops/attention/attention_sublayer_step.h"
#include "lamina/ops/linear/feed_forward_step_kernel.h"

namespace lamina::ops {

/// Kernel arguments.
struct AttentionSublayerStep {
  ResidualInput stream;
  AttentionProjections weights;  ///< weights contiguous bf16; biases contiguous f32, or undefined
  Tensor k_cache;                ///< [1, n_kv_heads, capacity, d], contiguous f32, bf16 or f16
  Tensor v_cache;
  Tensor places;          ///< [1] i64
  StepRotation rotation;  ///< tables contiguous f32, or undefined; positions defined if they are
  double scale = 1.0;     ///< of scores
};
namespace cuda {
/// One launch that computes `parts` [n, width]. If the kernel does not support the case, `parts` stays undefined and
/// nothing is written.
void attention_sublayer_step(const AttentionSublayerStep& args, Tensor& parts);
/// attention_sublayer_step() without the QKV projection: `projected` [(n_heads + 2 n_kv_heads)·d], contiguous f32, is
/// its result. Only the width of the residual stream is used.
void attention_output_step(const AttentionSublayerStep& args, const Tensor& projected, Tensor& parts);
}  // namespace cuda

}  // namespace lamina::ops
