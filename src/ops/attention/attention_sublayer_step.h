#pragma once

#include "lamina/ops/attention/attention_step.h"
#include "lamina/ops/linear/feed_forward_step.h"

namespace lamina::ops {

struct AttentionProjections {
  Tensor qkv;       ///< [(n_heads + 2 n_kv_heads)·d, width], any floating type: queries, keys, values
  Tensor qkv_bias;  ///< or undefined
  Tensor out;       ///< [width, n_heads·d]
  Tensor out_bias;  ///< or undefined
};

/// h = x + residual, Σ parts = out · attention_step(qkv · norm(h)): a whole sublayer of a step of decoding.
///   x [batch, 1, width], residual, norm   as norm_linear takes them
///   caches, places, rotation, options, extras, scales   as attention_step takes them
/// It is norm_linear, attention_step and linear, whose one part is the output. Of one row in f32 a GPU with clusters of
/// blocks (compute capability 9) takes it in one launch, where weights of bf16 lie in the shared memory of all
/// multiprocessors, caches are floating, and scores are only scaled; in two, norm_linear and the rest, where only those
/// of `out` do. A part is then that of a key head, and they are left to be added to whoever reads them. The weights are
/// read early there: what was launched right before must not have written them. No gradient.
SublayerStep attention_sublayer_step(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                     const AttentionProjections& weights, const Tensor& k_cache, const Tensor& v_cache,
                                     const Tensor& places, const StepRotation& rotation = {},
                                     const AttentionOptions& options = {}, const AttentionExtras& extras = {},
                                     const CacheScales& scales = {});

/// What the kernel is given.
struct AttentionSublayerStep {
  StepStream stream;
  AttentionProjections weights;  ///< weights dense, in bf16; biases dense, in f32, or undefined
  Tensor k_cache;                ///< [1, n_kv_heads, capacity, d], dense, of f32, bf16 or f16
  Tensor v_cache;
  Tensor places;          ///< [1] i64
  StepRotation rotation;  ///< tables dense, in f32, or undefined; positions defined where they are
  double scale = 1.0;     ///< of scores
};
namespace cuda {
/// One launch that makes `parts` [n, width]. They stay undefined, and nothing is written, for what its kernel does not
/// take.
void attention_sublayer_step(const AttentionSublayerStep& args, Tensor& parts);
/// The same for what comes behind the first product, of which `projected` [(n_heads + 2 n_kv_heads)·d], f32, dense, is
/// the result; of the stream only the width counts.
void attention_output_step(const AttentionSublayerStep& args, const Tensor& projected, Tensor& parts);
}  // namespace cuda

}  // namespace lamina::ops
