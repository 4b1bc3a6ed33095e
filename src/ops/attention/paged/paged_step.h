#pragma once

#include "lamina/ops/attention/attention_sublayer_step.h"
#include "lamina/ops/attention/paged/paged_attention.h"

namespace lamina::ops {

/// attention_step() with a paged KV cache: one new token per row. Rotates queries and keys of the packed QKV
/// projection, stores key and value at index length − 1 of the row, and attends to all tokens stored so far.
///   qkv      [rows, n_heads + 2 n_kv_heads, d]: queries, keys, values; not modified
///   cache    its values must be as wide as its keys; written
///   rows     lengths include the new token; starts must be 0, 1, 2, … (it is not read)
///   rotation positions [rows] i64 are required if there are tables; unused rows may have any valid position
///   returns  [rows, n_heads, d], dtype of qkv; zeros for rows of length 0
/// Equivalent to rotary() of queries and keys, paged_store() and paged_attention(). On a GPU it takes one launch for
/// 16-bit and 8-bit caches if the head width is a multiple of 16 and at most 256. No gradient.
Tensor paged_attention_step(const Tensor& qkv, const PagedCache& cache, const PagedRows& rows,
                            const StepRotation& rotation = {}, const AttentionOptions& options = {},
                            const AttentionExtras& extras = {});

/// attention_sublayer_step() with a paged KV cache: x [rows, 1, width], one new token per row. The fused kernels
/// support one row whose table has at most 2048 tokens (1536 if the QKV projection is a launch of its own), so slice
/// rows.tables to the pages in use. The kernel launched just before must write neither weights nor tables.
SublayerOutput paged_attention_sublayer_step(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                             const AttentionProjections& weights, const PagedCache& cache,
                                             const PagedRows& rows, const StepRotation& rotation = {},
                                             const AttentionOptions& options = {}, const AttentionExtras& extras = {});

}  // namespace lamina::ops
