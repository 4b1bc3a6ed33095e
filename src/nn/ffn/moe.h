#pragma once

#include "lamina/nn/ffn/experts.h"
#include "lamina/nn/mixer.h"
#include "lamina/nn/projection.h"

namespace lamina::nn {

/// A router sends each token to top_k of the experts and adds up what they give, weighted by its scores
/// (arXiv:1701.06538); shared experts see every token (arXiv:2401.06066).
///   router [experts, d_model], selection_bias [experts] (a buffer: whoever balances the load moves it, no gradient
///   does), experts as Experts has them, shared one feed-forward of shared_d_ff
/// The router computes in f32 at least, and its losses go to the pass. While training, an expert with a capacity_factor
/// drops what it has no room for; otherwise nothing is dropped, so that what a token gives does not depend on the
/// tokens it is computed with. What the last call did can be read from the buffers "chosen" [experts], how often each
/// expert was chosen, and "dropped" [1], how many choices were dropped; no checkpoint holds them.
class MoeFfn final : public Ffn {
 public:
  MoeFfn(int64_t d_model, const arch::Moe& spec, const ParameterFactory& make);

  Tensor forward(const Tensor& x, Pass& pass) override;

 private:
  void add_losses(const Tensor& logits, const Tensor& indices, Pass& pass) const;

  arch::Moe spec_;
  Linear router_;
  Tensor selection_bias_;
  Experts experts_;
  std::unique_ptr<Ffn> shared_;
  Tensor chosen_;
  Tensor dropped_;
};

}  // namespace lamina::nn
