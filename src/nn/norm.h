#pragma once

#include "lamina/arch/norm.h"
#include "lamina/nn/module.h"
#include "lamina/nn/parameter_factory.h"
#include "lamina/ops/linear/norm_linear.h"

namespace lamina::nn {

/// Any of the spec's norms over the last dimension.
///   "weight" [width], "bias" [width]: where the kind has them; a stored scale starts as 1 − offset
class NormLayer final : public Module {
 public:
  /// With `heads` > 1 the last dimension holds so many heads, each normed by itself, and every head has its own scale.
  NormLayer(const arch::Norm& norm, int64_t width, const ParameterFactory& make, int64_t heads = 1);

  /// x [..., width] → the same shape and type.
  Tensor forward(const Tensor& x) const;
  /// h = x + residual and its norm, in one pass over memory.
  ops::ResidualNorm forward_add(const Tensor& x, const Tensor& residual) const;
  /// What forward computes, as operators take it that norm by themselves; for one head.
  ops::RowNorm row_norm() const;
  void store_weights(const WeightFormats& formats, const std::string& prefix) override;

 private:
  Tensor per_head(const Tensor& x, double eps) const;
  /// weight + offset; undefined without a weight.
  Tensor layer_scale(double offset) const;

  arch::Norm norm_;
  int64_t width_;
  int64_t heads_;
  Tensor weight_;
  Tensor bias_;
};

}  // namespace lamina::nn
