#pragma once

#include "lamina/ops/attention/cuda/device.cuh"

namespace lamina::ops::cuda {

/// Two tensors in one, [2, batch, n_heads, seq_q]: delta = Σ_d dy · y, and base = log2 Σ exp(score).
Tensor make_delta(const AttentionBackward& args);
/// dt5_bias [buckets, n_heads]: sums params.dt5, the partial results of `tiles` query tiles per head.
void sum_bucket_gradients(const AttentionParams& params, int64_t tiles, const Tensor& dt5_bias, cudaStream_t stream);
/// dsinks [n_heads], from params.delta.
void sum_sink_gradients(const AttentionParams& params, const Tensor& dsinks, cudaStream_t stream);

}  // namespace lamina::ops::cuda
