#pragma once

#include "lamina/ops/attention/attention.h"

namespace lamina::ops::cuda {

/// Plain attention of bf16 and f16 (causal or not, grouped heads, any strides) by cuDNN's fused kernels, where cuDNN
/// has one for the shape; false, with nothing done, where it has none. `greatest` then holds log Σ exp(score) and
/// `inverse` ones, so that weights are exp(score − greatest) · inverse as ever. cuDNN's backward adds dq up in an order
/// that changes from run to run.
bool forward_by_cudnn(const AttentionForward& args);
/// Only after a forward that cuDNN took: it reads log Σ exp(score) alone.
bool backward_by_cudnn(const AttentionBackward& args);

}  // namespace lamina::ops::cuda
