#pragma once

#include "lamina/ops/attention/cuda/device.cuh"

namespace lamina::ops::cuda {

// Reductions that run before and after the backward kernels.

/// Returns delta = Σ_d dy · y and base = log2 Σ exp(score) of each row, in one tensor [2, batch, n_heads, seq_q].
Tensor make_delta(const AttentionBackward& args);
/// Computes dt5_bias [buckets, n_heads] by summing params.dt5, which has `tiles` partial results per head (one per
/// query tile).
void sum_bucket_gradients(const AttentionParams& params, int64_t tiles, const Tensor& dt5_bias, cudaStream_t stream);
/// Computes dsinks [n_heads] from params.delta.
void sum_sink_gradients(const AttentionParams& params, const Tensor& dsinks, cudaStream_t stream);

}  // namespace lamina::ops::cuda
