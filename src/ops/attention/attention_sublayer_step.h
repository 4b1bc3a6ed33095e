#pragma once

#include "lamina/ops/attention/attention_step.h"
#include "lamina/ops/linear/feed_forward_step.h"

namespace lamina::ops {

/// Weights of an attention sublayer.
struct AttentionProjections {
  LinearWeight qkv;  ///< [(n_heads + 2 n_kv_heads)·d, width], any floating type or quantized: queries, keys, values
  Tensor qkv_bias;   ///< or undefined
  LinearWeight out;  ///< [width, n_heads·d]
  Tensor out_bias;   ///< or undefined
};

/// A whole attention sublayer of a decoding step: h = x + residual, Σ parts = out · attention_step(qkv · norm(h)).
///   x [batch, 1, width], residual, norm   as in norm_linear
///   caches, places, rotation, options, extras, scales   as in attention_step
/// Composed of norm_linear, attention_step and linear; the output is then a single part. For one f32 row, a GPU with
/// thread block clusters (compute capability 9) runs it in one launch if the bf16 weights fit the shared memory of all
/// SMs, the caches are floating-point, and scores are only scaled. If only `out` fits, or both are quantized, it takes
/// two launches: norm_linear and the rest. Each KV head then yields one part; the consumer sums them. The weights are
/// prefetched: the kernel launched just before must not write them. No gradient.
SublayerOutput attention_sublayer_step(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                       const AttentionProjections& weights, const Tensor& k_cache,
                                       const Tensor& v_cache, const Tensor& places, const StepRotation& rotation = {},
                                       const AttentionOptions& options = {}, const AttentionExtras& extras = {},
                                       const CacheScales& scales = {});

}  // namespace lamina::ops
