#pragma once

#include "lamina/ops/attention/attention_sublayer_step.h"
#include "lamina/ops/linear/feed_forward_step_kernel.h"

namespace lamina::ops {

/// Kernel arguments.
struct AttentionSublayerStep {
  ResidualInput stream;
  AttentionProjections weights;  ///< weights contiguous bf16, or quantized; biases contiguous f32, or undefined
  Tensor k_cache;                ///< [1, n_kv_heads, capacity, d], contiguous f32, bf16 or f16; or pages
  Tensor v_cache;
  Tensor places;          ///< [1] i64; undefined in a paged cache
  Tensor tables;          ///< [1, width] i32: page table of a paged cache [pages, n_kv_heads, page_size, d]
  Tensor lengths;         ///< [1] i32, in a paged cache: tokens including the new one
  StepRotation rotation;  ///< tables contiguous f32, or undefined; positions defined if they are
  double scale = 1.0;     ///< of scores

  /// Keys that the cache can hold for the row.
  int64_t capacity() const { return tables.defined() ? tables.dim(1) * k_cache.dim(2) : k_cache.dim(2); }
};

/// Throws an Error naming `op` unless the output projection has the expected shape.
void check_output_projection(const char* op, const LinearWeight& weight, const Shape& expected);

/// Tries the kernels that fuse the sublayer of one row. If `output.parts` is undefined, none supports the case; `h` and
/// `projected`, the QKV projection, are then computed.
struct FusedSublayer {
  SublayerOutput output;
  Tensor h;
  Tensor projected;
};
/// `caches` has caches, places or tables and lengths, rotation and scale as given by the user; scores must only be
/// scaled if `may_fuse`.
FusedSublayer try_fused_sublayer(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                 const AttentionProjections& weights, const AttentionSublayerStep& caches,
                                 bool may_fuse);
/// Whether scores are only scaled: no pattern, soft cap, bias or sinks.
bool only_scales(const AttentionOptions& options, const AttentionExtras& extras);

namespace cuda {
/// One launch that computes `parts` [n, width]. If the kernel does not support the case, `parts` stays undefined and
/// nothing is written.
void attention_sublayer_step(const AttentionSublayerStep& args, Tensor& parts);
/// attention_sublayer_step() without the QKV projection: `projected` [(n_heads + 2 n_kv_heads)·d], contiguous f32, is
/// its result. Only the width of the residual stream is used.
void attention_output_step(const AttentionSublayerStep& args, const Tensor& projected, Tensor& parts);
}  // namespace cuda

}  // namespace lamina::ops
