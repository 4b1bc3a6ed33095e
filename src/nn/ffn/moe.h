#pragma once

#include "lamina/nn/ffn/experts.h"
#include "lamina/nn/mixer.h"
#include "lamina/nn/projection.h"

namespace lamina::nn {

/// Mixture of experts: a router sends each token to its top_k experts and sums their outputs, weighted by its scores
/// (arXiv:1701.06538). Shared experts process every token (arXiv:2401.06066).
///   router [experts, d_model], selection_bias [experts] (a buffer that the load balancer updates; it has no gradient),
///   experts (see Experts), shared: one feed-forward of width shared_d_ff
/// The router computes in at least f32 and reports its losses to the pass. In training, experts with a capacity_factor
/// drop tokens beyond their capacity. In inference nothing is dropped, so a token's output does not depend on the
/// others in the batch. The non-persistent buffers "chosen" [experts] and "dropped" [1] count, for the last call, how
/// often each expert was chosen and how many assignments were dropped.
class MoeFfn final : public Ffn {
 public:
  MoeFfn(int64_t d_model, const arch::Moe& spec, const ParameterFactory& make);

  Tensor forward(const Tensor& x, ForwardContext& pass) override;

 private:
  void add_losses(const Tensor& logits, const Tensor& indices, ForwardContext& pass) const;

  arch::Moe spec_;
  Linear router_;
  Tensor selection_bias_;
  Experts experts_;
  std::unique_ptr<Ffn> shared_;
  Tensor chosen_;
  Tensor dropped_;
};

}  // namespace lamina::nn
