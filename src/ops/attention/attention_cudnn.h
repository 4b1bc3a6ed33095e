#pragma once

#include "lamina/ops/attention/attention.h"

namespace lamina::ops::cuda {

/// Attention of bf16 and f16 (causal or not, grouped heads, any strides, a soft cap, ALiBi) by cuDNN's fused kernels,
/// where cuDNN has a good one for the shape; false, with nothing done, where it has none. `greatest` then holds log Σ
/// exp(score) and `inverse` ones, so that weights are exp(score − greatest) · inverse as ever. cuDNN's backward adds dq
/// up in an order that changes from run to run.
bool forward_by_cudnn(const AttentionForward& args);
/// After a forward of the same arguments, by cuDNN or, where forward_by_cudnn leaves it to them, by our kernels.
bool backward_by_cudnn(const AttentionBackward& args);

/// Whether forward_by_cudnn takes it: `inverse` was written only on a device that was asked for the same bits.
bool leaves_log_sums(const AttentionForward& args);

/// log Σ exp(score) [batch, n_heads, seq_q] from the statistics of our own forward.
Tensor log_sums(const AttentionForward& args);

}  // namespace lamina::ops::cuda
