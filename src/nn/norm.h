#pragma once

#include "lamina/arch/norm.h"
#include "lamina/nn/module.h"
#include "lamina/nn/parameter_factory.h"
#include "lamina/ops/linear/norm_linear.h"

namespace lamina::nn {

/// Any kind of norm in the spec, over the last dimension.
///   "weight" [width] and "bias" [width], if the kind has them; the stored weight is initialised to 1 − offset
class NormLayer final : public Module {
 public:
  /// With `heads` > 1, each head in the last dimension is normalized separately and has its own scale.
  NormLayer(const arch::Norm& norm, int64_t width, const ParameterFactory& make, int64_t heads = 1);

  /// x [..., width] → the same shape and type.
  Tensor forward(const Tensor& x) const;
  /// Returns h = x + residual and norm(h), computed in one pass over memory.
  ops::ResidualNorm forward_add(const Tensor& x, const Tensor& residual) const;
  /// The parameters of this norm, for operators that fuse it. Only for heads = 1.
  ops::RowNorm row_norm() const;
  void store_weights(const WeightFormats& formats, const std::string& prefix) override;

 private:
  Tensor per_head(const Tensor& x, double eps) const;
  /// weight + offset; undefined if there is no weight.
  Tensor layer_scale(double offset) const;

  arch::Norm norm_;
  int64_t width_;
  int64_t heads_;
  Tensor weight_;
  Tensor bias_;
};

}  // namespace lamina::nn
