#pragma once

#include <optional>

#include "lamina/arch/attention.h"
#include "lamina/nn/norm.h"

namespace lamina::nn {

/// QK norm. Heads that share one weight are normalized as [..., heads, head_dim]. Norms over the whole projection, and
/// heads with separate weights, use [..., heads · head_dim].
struct HeadNorm {
  HeadNorm(const arch::QkNorm& spec, int64_t heads, int64_t head_dim, const ParameterFactory& make) {
    if (const auto* per_head = std::get_if<arch::PerHeadQkNorm>(&spec)) {
      shared = !per_head->own_weights;
      after_rope = per_head->after_rope;
      layer.emplace(*per_head->norm, shared ? head_dim : heads * head_dim, make, shared ? 1 : heads);
    }
    if (const auto* whole = std::get_if<arch::WholeQkNorm>(&spec)) {
      after_rope = whole->after_rope;
      layer.emplace(*whole->norm, heads * head_dim, make);
    }
  }

  /// Normalizes and splits: x [batch, seq, heads · head_dim] → [batch, seq, heads, head_dim].
  Tensor split(const Tensor& x, int64_t heads) const {
    const Shape shape{x.dim(0), x.dim(1), heads, x.dim(2) / heads};
    if (!layer) return x.reshape(shape);
    return shared ? layer->forward(x.reshape(shape)) : layer->forward(x).reshape(shape);
  }

  /// Whether this is an RMS norm per head with a shared weight, before RoPE. RotaryPosition can fuse that.
  bool is_rms_of_heads() const {
    return layer && shared && !after_rope && layer->row_norm().kind == ops::RowNorm::Kind::rms;
  }

  std::optional<NormLayer> layer;
  bool shared = false;
  bool after_rope = false;
};

}  // namespace lamina::nn
