#pragma once

#include "lamina/ops/attention/attention_sublayer_step.h"
#include "lamina/ops/linear/feed_forward_step_kernel.h"

namespace lamina::ops {

/// Kernel arguments of attention_sublayer_step() and paged_attention_sublayer_step().
struct AttentionSublayerStep {
  ResidualInput stream;
  AttentionProjections weights;  ///< weights contiguous bf16, or quantized; biases contiguous f32, or undefined
  /// [1, n_kv_heads, capacity, d], contiguous f32, bf16 or f16; or the pages of a paged cache.
  Tensor k_cache;
  Tensor v_cache;
  Tensor places;          ///< [1] i64; undefined for a paged cache
  Tensor tables;          ///< [1, width] i32: page table; the caches are then pages [pages, n_kv_heads, page_size, d]
  Tensor lengths;         ///< [1] i32, for a paged cache: number of tokens, including the new one
  StepRotation rotation;  ///< tables contiguous f32, or undefined; if they are defined, so are the positions
  double scale = 1.0;     ///< factor on the scores

  /// Number of keys that the cache can hold for the row.
  int64_t capacity() const { return tables.defined() ? tables.dim(1) * k_cache.dim(2) : k_cache.dim(2); }
};

/// Throws an Error that names `op` if the output projection does not have the expected shape.
void check_output_projection(const char* op, const LinearWeight& weight, const Shape& expected);

/// Result of try_fused_sublayer(). If output.parts is undefined, no fused kernel supports the case; `h` and the QKV
/// projection `projected` have then been computed for the caller.
struct FusedSublayer {
  SublayerOutput output;
  Tensor h;
  Tensor projected;
};
/// Tries the kernels that fuse the sublayer of one row. `caches` has the caches, places (or tables and lengths),
/// rotation and scale as given by the user. may_fuse: the options allow it, in particular only_scales().
FusedSublayer try_fused_sublayer(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                 const AttentionProjections& weights, const AttentionSublayerStep& caches,
                                 bool may_fuse);
/// True if scores are only scaled: no pattern, soft cap, bias or sinks.
bool only_scales(const AttentionOptions& options, const AttentionExtras& extras);

namespace cuda {
/// Computes `parts` [n, width] in one launch. If the kernel does not support the case, `parts` stays undefined and
/// nothing is written.
void attention_sublayer_step(const AttentionSublayerStep& args, Tensor& parts);
/// attention_sublayer_step() without norm and QKV projection, whose result is given: `projected` [(n_heads + 2
/// n_kv_heads)·d], contiguous f32. Of args.stream, only the width is used.
void attention_output_step(const AttentionSublayerStep& args, const Tensor& projected, Tensor& parts);
}  // namespace cuda

}  // namespace lamina::ops
