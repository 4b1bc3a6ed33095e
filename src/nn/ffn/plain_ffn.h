#pragma once

#include "lamina/nn/mixer.h"
#include "lamina/nn/projection.h"
#include "lamina/ops/activation/xielu.h"

namespace lamina::nn {

/// The learned parameters of xIELU. Their initial effective value is 0.8, as in the paper's code.
class LearnedXielu final : public Module {
 public:
  LearnedXielu(const arch::Xielu& spec, const ParameterFactory& make);
  Tensor forward(const Tensor& x) const { return ops::xielu(x, alpha_p_, alpha_n_, options_); }

 private:
  ops::XieluOptions options_;
  Tensor alpha_p_;
  Tensor alpha_n_;
};

/// down(act(up(x))). `act` may be xIELU, which has learned parameters.
///   up [d_ff, d_model], down [d_model, d_ff], xielu.alpha_p [1], xielu.alpha_n [1]
class PlainFfn final : public Ffn {
 public:
  PlainFfn(int64_t d_model, const arch::PlainFfn& spec, const ParameterFactory& make);

  Tensor forward(const Tensor& x, ForwardContext& pass) override;
  Tensor forward_normed(ResidualStream& stream, const NormLayer& norm, ForwardContext& pass) override;

 private:
  bool has_unquantized_weight() const { return up_.has_unquantized_weight() && down_.has_unquantized_weight(); }
  /// down(xielu(inner))
  Tensor activated(const Tensor& inner, Tape* recompute) const;

  ops::Activation activation_;
  std::optional<LearnedXielu> xielu_;
  Linear up_;
  Linear down_;
};

}  // namespace lamina::nn
