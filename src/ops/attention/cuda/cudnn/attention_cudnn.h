#pragma once

#include "lamina/ops/attention/attention.h"

namespace lamina::ops::cuda {

/// Attention in bf16 and f16 (causal or not, grouped heads, any strides, soft cap, ALiBi) by cuDNN's fused kernels.
/// Returns false and does nothing if cuDNN has no good kernel for the shape. `row_max` then holds log Σ exp(score) and
/// `row_inv_sum` ones, so weights are still exp(score − row_max) · row_inv_sum. cuDNN's backward accumulates dq with
/// atomics, so it is not deterministic.
bool forward_by_cudnn(const AttentionForward& args);
/// Runs after a forward of the same arguments, by cuDNN or, if forward_by_cudnn declined, by our kernels.
bool backward_by_cudnn(const AttentionBackward& args);

/// Whether forward_by_cudnn runs this case. `row_inv_sum` is then written only in deterministic mode.
bool forward_saves_log_sum_exp(const AttentionForward& args);

/// log Σ exp(score) [batch, n_heads, seq_q], from the statistics of our own forward.
Tensor log_sum_exp(const AttentionForward& args);

}  // namespace lamina::ops::cuda
