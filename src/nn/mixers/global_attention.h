#pragma once

#include "lamina/arch/attention.h"
#include "lamina/nn/forward_context.h"
#include "lamina/nn/projection.h"

namespace lamina::nn {

/// Global tokens (Longformer, arXiv:2004.05150), which attend to the whole row. They use separate projections of the
/// same input for their queries, and for the keys and values that they attend to.
///   "global_q.…", "global_k.…", "global_v.…"; register it with add_child("", …)
class GlobalAttention final : public Module {
 public:
  GlobalAttention(int64_t d_model, const arch::Attention& attention, const ParameterFactory& make);

  /// Replaces the outputs y [batch, seq, n_heads, v_head_dim] of the global tokens (the first ones of each row of x
  /// [batch, seq, d_model]) by their attention to the whole row.
  Tensor replace(const Tensor& x, const Tensor& y, ForwardContext& pass) const;

 private:
  Tensor attend(const Tensor& x, const Tensor& k, const Tensor& v, ForwardContext& pass) const;

  arch::Attention spec_;
  int64_t tokens_;
  Linear q_;
  PackedLinear kv_;
};

}  // namespace lamina::nn
