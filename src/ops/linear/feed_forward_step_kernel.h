#pragma once

#include "lamina/ops/linear/feed_forward_step.h"
#include "lamina/ops/linear/norm_linear_kernel.h"

namespace lamina::ops {

/// Wraps an output y as a single part; h is the residual stream.
SublayerOutput single_part(const Tensor& h, const Tensor& y);

/// The residual stream in the form that the kernels of whole sublayers take.
struct ResidualInput {
  Tensor x;         ///< [width], f32
  Tensor residual;  ///< [n, width], contiguous f32, or undefined
  RowNorm norm;     ///< weight and bias contiguous f32, or undefined; no groups
  Tensor h;         ///< [width], written if there is a residual
  /// The weights were just copied, so the kernel must wait for all previous kernels before it reads them.
  bool weights_just_written = false;

  /// The result, given the caller's x and the parts [n, width] that the kernel computed.
  SublayerOutput finished(const Tensor& given, const Tensor& parts) const;
};
/// Converts the arguments for the kernels. The result's x is undefined if the kernels do not support the case, i.e. if
/// it is not one f32 row on a GPU or gradients are tracked.
ResidualInput step_stream(const Tensor& x, const Tensor& residual, const RowNorm& norm);

/// Kernel arguments of feed_forward_step() and, if `gated`, gated_feed_forward_step().
struct FeedForwardStep {
  ResidualInput stream;
  FeedForwardWeights weights;  ///< weights contiguous bf16; biases contiguous f32, or undefined
  Activation activation = Activation::none;
  bool gated = false;
  Gate gate = Gate::swiglu;
  GateOptions options;
};
namespace cuda {
/// Computes `parts` [n, width] in one launch. If the kernel does not support the case, `parts` stays undefined and
/// nothing is written.
void feed_forward_step(const FeedForwardStep& args, Tensor& parts);
}  // namespace cuda

}  // namespace lamina::ops
