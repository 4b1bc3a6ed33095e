#pragma once

#include "lamina/ops/attention/attention_step.h"
#include "lamina/ops/linear/feed_forward_step.h"

namespace lamina::ops {

/// The weights of an attention sublayer: QKV projection and output projection.
struct AttentionProjections {
  /// [(n_heads + 2 n_kv_heads)·d, width], any floating type or quantized; rows of queries, keys, values.
  LinearWeight qkv;
  Tensor qkv_bias;   ///< [(n_heads + 2 n_kv_heads)·d], or undefined
  LinearWeight out;  ///< [width, n_heads·d]
  Tensor out_bias;   ///< [width], or undefined
};

/// A whole attention sublayer for decoding: h = x + residual, Σ parts = out · attention_step(qkv · norm(h)).
///   x [batch, 1, width], residual, norm   as in norm_linear
///   caches, places, rotation, options, extras, scales   as in attention_step
/// For one f32 row, a GPU with thread block clusters (compute capability 9.0) runs it in one launch if the bf16 weights
/// fit the shared memory of all SMs, the caches are floating-point, and scores are only scaled. If only `out` fits, or
/// both weights are quantized, it takes two launches: norm_linear() and the rest. In these cases each KV head yields
/// one part. The weights are prefetched, so the kernel launched just before must not write them. Otherwise
/// norm_linear(), attention_step() and linear() run one after the other, and the output is a single part. No gradient.
SublayerOutput attention_sublayer_step(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                       const AttentionProjections& weights, const Tensor& k_cache,
                                       const Tensor& v_cache, const Tensor& places, const StepRotation& rotation = {},
                                       const AttentionOptions& options = {}, const AttentionExtras& extras = {},
                                       const CacheScales& scales = {});

}  // namespace lamina::ops
