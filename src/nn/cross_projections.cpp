#include "lamina/nn/cross_projections.h"

#include "lamina/nn/position_tables.h"
#include "lamina/ops/attention/attention.h"

namespace lamina::nn {
namespace {

/// A context for rows whose first token has position `offset`.
ForwardContext positions_from(const Tensor& x, int64_t offset) {
  ForwardContext pass;
  pass.batch = x.dim(0);
  pass.seq = x.dim(1);
  pass.offset = offset;
  return pass;
}

}  // namespace

CrossProjections::CrossProjections(const arch::ArchSpec& spec, const arch::CrossAttention& cross,
                                   const ParameterFactory& make, PositionTables& positions)
    : spec_(cross),
      q_(cross.n_heads * *cross.head_dim, spec.d_model, cross.bias.q, make.at("q")),
      kv_("kv",
          {{"k", *cross.n_kv_heads * *cross.head_dim, cross.bias.k},
           {"v", *cross.n_kv_heads * *cross.head_dim, cross.bias.v}},
          *cross.d_source, make),
      o_(spec.d_model, cross.n_heads * *cross.head_dim, cross.bias.o, make.at("o"), Linear::Ends::in_residual) {
  if (const auto* rope = std::get_if<arch::Rope>(&*cross.position)) rotary_ = &positions.rotary(*rope);
  add_child("q", q_);
  add_child("", kv_);
  add_child("o", o_);
}

Tensor CrossProjections::queries(const Tensor& x, int64_t offset) const {
  const Tensor q = q_.forward(x).reshape({x.dim(0), x.dim(1), spec_.n_heads, *spec_.head_dim});
  return rotary_ == nullptr ? q : rotary_->rotate(q, positions_from(q, offset));
}

CrossKeys CrossProjections::keys(const Tensor& source, int64_t parts) const {
  const std::vector<Tensor> projected = kv_.forward_parts(source);
  const auto by_head = [&](const Tensor& x, int64_t rows) {
    return x.reshape({rows, source.dim(0) * source.dim(1) / rows, *spec_.n_kv_heads, *spec_.head_dim});
  };
  const int64_t batch = source.dim(0);
  if (rotary_ == nullptr) return {by_head(projected[0], batch), by_head(projected[1], batch)};
  const Tensor k = by_head(projected[0], batch * parts);
  return {by_head(rotary_->rotate(k, positions_from(k, 0)), batch), by_head(projected[1], batch)};
}

Tensor CrossProjections::attend(const Tensor& q, const CrossKeys& keys, ForwardContext& pass) const {
  ops::AttentionOptions options{.causal = false, .scale = *spec_.scale};
  if (pass.training && pass.dropout.attention > 0.0) {
    options.dropout = pass.dropout.attention;
    options.dropout_key = pass.draw();
  }
  return ops::attention(q, keys.k, keys.v, options);
}

Tensor CrossProjections::output(const Tensor& y, int64_t batch, int64_t seq) const {
  return o_.forward(y.reshape({batch, seq, spec_.n_heads * *spec_.head_dim}));
}

}  // namespace lamina::nn
