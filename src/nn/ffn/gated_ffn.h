#pragma once

#include "lamina/nn/mixer.h"
#include "lamina/nn/projection.h"
#include "lamina/ops/activation/gated_activation.h"

namespace lamina::nn {

/// Converts the architecture's gate settings for ops::gated_activation, whose result must be multiplied by gate_scale.
ops::GateOptions gate_options(const arch::GatedFfn& spec);
/// factor · x; x itself if the factor is 1.
Tensor scaled(const Tensor& x, double factor);

/// out_scale · down(act(gate_scale · gate(x)) · (up(x) + up_offset)); gate and up are one GEMM.
///   gate, up [d_ff, d_model], down [d_model, d_ff]
class GatedFfn final : public Ffn {
 public:
  GatedFfn(int64_t d_model, const arch::GatedFfn& spec, const ParameterFactory& make);

  Tensor forward(const Tensor& x, ForwardContext& pass) override;
  Tensor forward_normed(ResidualStream& stream, const NormLayer& norm, ForwardContext& pass) override;

 private:
  /// act(gate) · up, from the packed output of the gate and up projections. Input of the down projection.
  Tensor gated(const Tensor& projected) const;
  /// Down projection and out_scale, applied to the result of gated().
  Tensor finish(const Tensor& inner) const;

  ops::Gate gate_;
  ops::GateOptions options_;
  double gate_scale_;
  double out_scale_;
  PackedLinear gate_up_;
  Linear down_;
};

}  // namespace lamina::nn
