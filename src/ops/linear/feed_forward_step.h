#pragma once

#include "lamina/ops/linear/feed_forward.h"
#include "lamina/ops/linear/norm_linear.h"

namespace lamina::ops {

/// What a sublayer of a residual stream makes of it.
struct SublayerStep {
  Tensor h;      ///< x + residual, as NormLinear has it
  Tensor parts;  ///< [n, ..., width]: the sublayer's output is the sum of these, in their order
};

/// h = x + residual, Σ parts = feed_forward(norm(h), weights, activation): a whole sublayer of a step of decoding.
///   x [..., width], residual, norm   as norm_linear takes them; the output is as wide as x
/// It is norm_linear and linear, whose one part is the output. Of one row in f32 a GPU with clusters of blocks (compute
/// capability 9) takes it in one launch, where the weights are of bf16 and lie in the shared memory of all
/// multiprocessors: the parts are those of groups of them, and are left to be added to whoever reads them. The weights
/// are read early there: what was launched right before must not have written them.
SublayerStep feed_forward_step(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                               const FeedForwardWeights& weights, Activation activation);
/// The same with gated_linear instead of the first product; weights.up is gate and up joined, as it takes them.
SublayerStep gated_feed_forward_step(const Tensor& x, const Tensor& residual, const RowNorm& norm,
                                     const FeedForwardWeights& weights, Gate gate, const GateOptions& options = {});

/// The step whose output is y, h being the stream's value.
SublayerStep as_one_part(const Tensor& h, const Tensor& y);

/// The stream as kernels of whole sublayers are given it.
struct StepStream {
  Tensor x;           ///< [width], f32
  Tensor residual;    ///< [n, width], f32, dense, or undefined
  RowNorm norm;       ///< weight and bias dense, in f32, or undefined; no groups
  Tensor h;           ///< [width], written where there is a residual
  bool late = false;  ///< weights were copied just now, and are not read before all that came before is complete

  /// For the x that was given: parts [n, width].
  SublayerStep finished(const Tensor& given, const Tensor& parts) const;
};
/// Undefined x where kernels do not take it: not one row in f32 on a GPU, something tracked.
StepStream step_stream(const Tensor& x, const Tensor& residual, const RowNorm& norm);

/// What the kernel is given.
struct FeedForwardStep {
  StepStream stream;
  FeedForwardWeights weights;  ///< weights dense, in bf16; biases dense, in f32, or undefined
  Activation activation = Activation::none;
  bool gated = false;
  Gate gate = Gate::swiglu;
  GateOptions options;
};
namespace cuda {
/// One launch that makes `parts` [n, width]. They stay undefined, and nothing is written, for what its kernel does not
/// take.
void feed_forward_step(const FeedForwardStep& args, Tensor& parts);
}  // namespace cuda

}  // namespace lamina::ops
