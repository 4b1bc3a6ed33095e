#pragma once

#include "lamina/ops/attention/attention_kernel.h"

namespace lamina::ops::cuda {

/// Attention in bf16 and f16 (causal or not, grouped heads, any strides, soft cap, ALiBi) by cuDNN's fused kernels.
bool supports_cudnn(const AttentionForward& args);
/// Leaves log Σ exp(score) in `row_max` and does not write `row_inv_sum`. Returns false and does nothing if cuDNN has
/// no kernel for the shape.
bool forward_by_cudnn(const AttentionForward& args);
/// Runs after any forward. dq accumulates with atomics, so it is not deterministic.
bool backward_by_cudnn(const AttentionBackward& args);

/// log Σ exp(score) [batch, n_heads, seq_q], from the statistics of our own forward.
Tensor log_sum_exp(const AttentionForward& args);

}  // namespace lamina::ops::cuda
