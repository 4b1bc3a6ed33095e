#pragma once

#include "lamina/ops/attention/attention_kernel.h"

namespace lamina::ops::cuda {

/// True if cuDNN's fused kernels support the call: bf16 or f16, causal or not, grouped heads, any strides, soft cap,
/// ALiBi.
bool supports_cudnn(const AttentionForward& args);
/// Forward by cuDNN. Writes log Σ exp(score) to `row_max` and does not write `row_inv_sum`. Returns false, without
/// doing anything, if cuDNN has no kernel for the shape.
bool forward_by_cudnn(const AttentionForward& args);
/// Backward by cuDNN, after any forward. dq accumulates with atomics, so it is not deterministic.
bool backward_by_cudnn(const AttentionBackward& args);

/// log Σ exp(score) [batch, n_heads, seq_q], computed from the statistics of our own forward kernels.
Tensor log_sum_exp(const AttentionForward& args);

}  // namespace lamina::ops::cuda
