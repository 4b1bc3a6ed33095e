#pragma once

#include "lamina/ops/linear/feed_forward_step.h"
#include "lamina/ops/linear/norm_linear_kernel.h"

namespace lamina::ops {

/// Wraps an output y as a single part; h is the value of the residual stream.
SublayerOutput single_part(const Tensor& h, const Tensor& y);

/// The residual stream as kernels of whole sublayers take it.
struct ResidualInput {
  Tensor x;         ///< [width], f32
  Tensor residual;  ///< [n, width], contiguous f32, or undefined
  RowNorm norm;     ///< weight and bias contiguous f32, or undefined; no groups
  Tensor h;         ///< [width], written if there is a residual
  bool weights_just_written =
      false;  ///< the weights were just copied: wait for all previous kernels before reading them

  /// The result for the x that was given: parts [n, width].
  SublayerOutput finished(const Tensor& given, const Tensor& parts) const;
};
/// x is undefined if the kernels do not support the case: not one f32 row on a GPU, or gradients tracked.
ResidualInput step_stream(const Tensor& x, const Tensor& residual, const RowNorm& norm);

/// Kernel arguments.
struct FeedForwardStep {
  ResidualInput stream;
  FeedForwardWeights weights;  ///< weights contiguous bf16; biases contiguous f32, or undefined
  Activation activation = Activation::none;
  bool gated = false;
  Gate gate = Gate::swiglu;
  GateOptions options;
};
namespace cuda {
/// One launch that computes `parts` [n, width]. If the kernel does not support the case, `parts` stays undefined and
/// nothing is written.
void feed_forward_step(const FeedForwardStep& args, Tensor& parts);
}  // namespace cuda

}  // namespace lamina::ops
