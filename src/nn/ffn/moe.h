#pragma once

#include "lamina/nn/ffn/experts.h"
#include "lamina/nn/mixer.h"
#include "lamina/nn/projection.h"
#include "lamina/ops/moe/route.h"

namespace lamina::nn {

/// Mixture of experts: a router sends each token to its top_k experts and sums their outputs, weighted by its scores
/// (arXiv:1701.06538). Shared experts process every token (arXiv:2401.06066).
///   router [experts, d_model]
///   selection_bias [experts]: a buffer without gradient, which the load balancer updates
///   experts: see Experts; shared: one feed-forward of width shared_d_ff
///   shared_gate [1, d_model]: the shared output is multiplied by sigmoid(shared_gate · x)
/// The router computes in at least f32 and appends its losses to the context.
///
/// Dropped tokens: in training, experts with a capacity_factor drop tokens beyond their capacity. Inference drops none,
/// so a token's output does not depend on the rest of the batch. A fixed `capacity` applies always, per sequence of a
/// call; an expert that drops a token contributes zeros. Ragged steps (pass.rows) ignore it. The non-persistent buffers
/// "chosen" [experts] and "dropped" [1] count, for the last call, how often each expert was chosen and how many
/// assignments were dropped.
class MoeFfn final : public Ffn {
 public:
  MoeFfn(int64_t d_model, const arch::Moe& spec, const ParameterFactory& make);

  Tensor forward(const Tensor& x, ForwardContext& pass) override;

 private:
  /// Expert outputs for x [tokens, d_model]. An expert takes at most `capacity` tokens; 0: all.
  Tensor run_experts(const Tensor& x, const ops::Routing& routing, int64_t capacity, const ForwardContext& pass);
  /// run_experts() for routers whose weights multiply the experts' inputs instead of their outputs.
  Tensor run_weighed(const Tensor& x, const ops::Routing& routing, int64_t capacity, const ForwardContext& pass);
  /// Expert outputs for rows sorted by expert. With expert parallelism the experts may be on other ranks.
  Tensor run_sorted(const Tensor& rows, const Tensor& offsets, const ForwardContext& pass);
  /// Boundaries of the sequences in x [batch, seq, d_model] if one may exceed the fixed capacity; empty otherwise.
  std::vector<int64_t> limited_rows(const Tensor& x, const ForwardContext& pass) const;
  /// run_experts() per sequence, with the fixed capacity.
  Tensor run_rows(const Tensor& x, const ops::Routing& routing, const std::vector<int64_t>& starts,
                  const ForwardContext& pass);
  void add_losses(const Tensor& logits, const ops::Routing& routing, ForwardContext& pass) const;

  arch::Moe spec_;
  Linear router_;
  Tensor selection_bias_;
  Experts experts_;
  std::unique_ptr<Ffn> shared_;
  std::optional<Linear> shared_gate_;
  Tensor chosen_;
  Tensor dropped_;
};

}  // namespace lamina::nn
