#pragma once

#include "lamina/arch/spec.h"
#include "lamina/nn/forward_context.h"
#include "lamina/nn/projection.h"

namespace lamina::nn {

class PositionTables;
class RotaryPosition;

/// Keys and values of a source.
struct CrossKeys {
  Tensor k;  ///< [batch, seq, n_kv_heads, head_dim]
  Tensor v;  ///< [batch, seq, n_kv_heads, head_dim]
};

/// The projections of attention to a source, and the attention without a mask. Parameters are "q.…", "k.…", "v.…" and
/// "o.…".
class CrossProjections final : public Module {
 public:
  CrossProjections(const arch::ArchSpec& spec, const arch::CrossAttention& cross, const ParameterFactory& make,
                   PositionTables& positions);

  const arch::CrossAttention& spec() const { return spec_; }
  /// x [batch, seq, d_model] → [batch, seq, n_heads, head_dim], rotated from position `offset` on.
  Tensor queries(const Tensor& x, int64_t offset) const;
  /// source [batch, seq, d_source]. A row consists of `parts` texts of equal length; positions start at 0 in each.
  CrossKeys keys(const Tensor& source, int64_t parts = 1) const;
  /// Every query sees every key of its row. Drops weights as `pass` says.
  Tensor attend(const Tensor& q, const CrossKeys& keys, ForwardContext& pass) const;
  /// y [batch, seq, n_heads, head_dim], or any shape with as many elements → [batch, seq, d_model].
  Tensor output(const Tensor& y, int64_t batch, int64_t seq) const;

 private:
  arch::CrossAttention spec_;
  Linear q_;
  JoinedLinear kv_;
  Linear o_;
  RotaryPosition* rotary_ = nullptr;  ///< null: no positions
};

}  // namespace lamina::nn
