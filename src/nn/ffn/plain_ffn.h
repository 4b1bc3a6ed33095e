#pragma once

#include "lamina/nn/mixer.h"
#include "lamina/nn/projection.h"

namespace lamina::nn {

/// down(act(up(x)))
///   up [d_ff, d_model], down [d_model, d_ff]
class PlainFfn final : public Ffn {
 public:
  PlainFfn(int64_t d_model, const arch::PlainFfn& spec, const ParameterFactory& make);

  Tensor forward(const Tensor& x, ForwardContext& pass) override;
  Tensor forward_normed(ResidualStream& stream, const NormLayer& norm, ForwardContext& pass) override;

 private:
  bool has_unquantized_weight() const { return up_.has_unquantized_weight() && down_.has_unquantized_weight(); }

  ops::Activation activation_;
  Linear up_;
  Linear down_;
};

}  // namespace lamina::nn
