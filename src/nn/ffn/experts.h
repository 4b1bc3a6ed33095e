#pragma once

#include "lamina/arch/ffn.h"
#include "lamina/nn/module.h"
#include "lamina/nn/parameter_factory.h"
#include "lamina/nn/weight_and_bias.h"

namespace lamina::nn {

/// Feed-forward layers of all experts, plain or gated; each processes the rows routed to it.
///   gate, up [experts, d_ff, d_model], down [experts, d_model, d_ff]; biases [experts, d_ff], [experts, d_model]
/// Expert-parallel ranks have some of the experts each.
/// gate and up of an expert are packed into [2·d_ff, d_model] for one GEMM, unless a checkpoint was adopted in place.
class Experts final : public Module {
 public:
  Experts(int64_t d_model, const arch::Moe& spec, const ParameterFactory& make);

  /// rows [slots, d_model], sorted by this rank's experts with boundaries `offsets` → the same shape. `recompute`:
  /// tape for selective recomputation, or null.
  Tensor forward(const Tensor& rows, const Tensor& offsets, Tape* recompute) const;

 private:
  /// Input of the activation: [slots, d_ff], or [slots, 2·d_ff] with the gate first.
  Tensor inner(const Tensor& rows, const Tensor& offsets) const;
  /// The activation of inner().
  Tensor activated(const Tensor& inner) const;

  arch::ExpertFfn spec_;
  int64_t held_;            ///< experts of this rank
  JoinedTensor in_weight_;  ///< up, or gate and up
  JoinedTensor in_bias_;    ///< empty layout if there are no biases
  WeightAndBias down_;
};

}  // namespace lamina::nn
