#pragma once

#include "lamina/arch/ffn.h"
#include "lamina/nn/module.h"
#include "lamina/nn/parameter_factory.h"
#include "lamina/nn/weight_and_bias.h"

namespace lamina::nn {

/// The feed-forward layers of all experts, plain or gated. Each processes the rows routed to it.
///   gate, up [experts, d_ff, d_model], down [experts, d_model, d_ff]; biases [experts, d_ff], [experts, d_model]
/// An expert-parallel rank holds a part of the experts. gate and up of an expert are packed into [2·d_ff, d_model] for
/// one GEMM, unless a checkpoint was adopted in place.
class Experts final : public Module {
 public:
  Experts(int64_t d_model, const arch::Moe& spec, const ParameterFactory& make);

  /// rows [slots, d_model] → the same shape. Rows are sorted by expert; `offsets` marks the boundaries between this
  /// rank's experts. `recompute` is the tape for selective recomputation, or null.
  Tensor forward(const Tensor& rows, const Tensor& offsets, Tape* recompute) const;

 private:
  /// Input of the activation: [slots, d_ff] or, for gated experts, [slots, 2·d_ff] with the gate first.
  Tensor inner(const Tensor& rows, const Tensor& offsets) const;
  /// Applies the activation to the result of inner().
  Tensor activated(const Tensor& inner) const;

  arch::ExpertFfn spec_;
  int64_t held_;            ///< number of experts on this rank
  PackedTensor in_weight_;  ///< up, or gate and up
  PackedTensor in_bias_;    ///< empty layout if there are no biases
  WeightAndBias down_;
};

}  // namespace lamina::nn
