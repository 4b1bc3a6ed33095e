#include "lamina/nn/mixers/global_attention.h"

#include <algorithm>

#include "lamina/ops/attention/attention.h"
#include "lamina/ops/elementwise/concat.h"

namespace lamina::nn {

GlobalAttention::GlobalAttention(int64_t d_model, const arch::Attention& a, const ParameterFactory& make)
    : spec_(a),
      tokens_(std::get<arch::LongformerPattern>(a.pattern).global_tokens),
      q_(a.n_heads * *a.head_dim, d_model, a.bias.q, make.at("global_q")),
      kv_("global_kv",
          {{"global_k", *a.n_kv_heads * *a.head_dim, a.bias.k}, {"global_v", *a.n_kv_heads * *a.v_head_dim, a.bias.v}},
          d_model, make) {
  add_child("global_q", q_);
  add_child("", kv_);
}

/// Attention of the global tokens, the first ones of x [batch, seq, d_model], to all tokens. k and v are global
/// projections.
Tensor GlobalAttention::attend(const Tensor& x, const Tensor& k, const Tensor& v, ForwardContext& pass) const {
  const int64_t count = std::min(tokens_, x.dim(1));
  const Tensor q = q_.forward(x.slice(1, 0, count)).reshape({x.dim(0), count, spec_.n_heads, *spec_.head_dim});
  ops::AttentionOptions options{.causal = false, .scale = *spec_.scale, .soft_cap = spec_.soft_cap.value_or(0.0)};
  if (pass.training && pass.dropout.attention > 0.0) {
    options.dropout = pass.dropout.attention;
    options.dropout_key = pass.draw();
  }
  return ops::attention(q, k, v, options);
}

Tensor GlobalAttention::replace(const Tensor& x, const Tensor& y, ForwardContext& pass) const {
  const std::vector<Tensor> parts = kv_.forward_parts(x);
  const auto by_head = [&](const Tensor& part, int64_t width) {
    return part.reshape({part.dim(0), part.dim(1), *spec_.n_kv_heads, width});
  };
  const Tensor k = by_head(parts[0], *spec_.head_dim);
  const Tensor v = by_head(parts[1], *spec_.v_head_dim);
  std::vector<int64_t> starts = pass.row_starts;
  if (starts.empty()) starts = {0, x.dim(1)};
  std::vector<Tensor> pieces;
  for (size_t row = 0; row + 1 < starts.size(); ++row) {
    const int64_t length = starts[row + 1] - starts[row];
    const auto tokens = [&](const Tensor& t) { return t.slice(1, starts[row], length); };
    const Tensor global = attend(tokens(x), tokens(k), tokens(v), pass);
    pieces.push_back(global);
    if (global.dim(1) < length) pieces.push_back(tokens(y).slice(1, global.dim(1), length - global.dim(1)));
  }
  return ops::concat(pieces, 1);
}

}  // namespace lamina::nn
