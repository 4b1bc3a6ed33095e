#pragma once

#include "lamina/ops/attention/attention.h"

namespace lamina::ops::cuda {

/// Attention in bf16 and f16 (causal or not, grouped heads, any strides, soft cap, ALiBi) by cuDNN's fused kernels.
/// Returns false and does nothing if cuDNN has no good kernel for the shape. `greatest` then holds log Σ exp(score) and
/// `inverse` ones, so weights are still exp(score − greatest) · inverse. cuDNN's backward accumulates dq with atomics,
/// so it is not deterministic.
bool forward_by_cudnn(const AttentionForward& args);
/// Runs after a forward of the same arguments, by cuDNN or, if forward_by_cudnn declined, by our kernels.
bool backward_by_cudnn(const AttentionBackward& args);

/// Whether forward_by_cudnn runs this case. `inverse` is then written only in deterministic mode.
bool leaves_log_sums(const AttentionForward& args);

/// log Σ exp(score) [batch, n_heads, seq_q], from the statistics of our own forward.
Tensor log_sums(const AttentionForward& args);

}  // namespace lamina::ops::cuda
