#pragma once

#include "lamina/ops/attention/attention_step.h"
#include "lamina/ops/linear/feed_forward_step.h"

namespace lamina::ops {

/// Weights of an attention sublayer.
struct AttentionProjections {
  Tensor qkv;       ///< [(n_heads + 2 n_kv_heads)·d, width], any floating type: queries, keys, values
  Tensor qkv_bias;  ///< or undefined
  Tensor out;       ///< [width, n_heads·d]
  Tensor out_bias;  ///< or undefined
};

/// A whole attention sublayer of a decoding step: h = x + residual, Σ parts = out · attention_step(qkv · norm(h)).
///   x [batch, 1, width], residual, norm   as in norm_linear
///   caches, places, rotation, options, extras, scales   as in attention_step
/// Composed of norm_linear, attention_step and linear; the output is then a single part. For one f32 row, a GPU with
/// thread block clusters (compute capability 9) runs it in one launch if the bf16 weights fit the shared memory of all
/// SMs, the caches are floating-point, and scores are only scaled. If only `out` fits, it takes two launches:
/// norm_linear and the rest. Each KV head then yields one part; the consumer sums them. The weights are prefetched: the
/// kernel launched just before must not write them. No gradient.
SublayerOutput attention_sublayer_step(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                       const AttentionProjections& weights, const Tensor& k_cache,
                                       const Tensor& v_cache, const Tensor& places, const StepRotation& rotation = {},
                                       const AttentionOptions& options = {}, const AttentionExtras& extras = {},
                                       const CacheScales& scales = {});

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
