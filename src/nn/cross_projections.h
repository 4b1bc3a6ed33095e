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

/// The projections of cross-attention, and the attention itself, without a mask. Parameters: "q.…", "k.…", "v.…" and
/// "o.…".
class CrossProjections final : public Module {
 public:
  CrossProjections(const arch::ArchSpec& spec, const arch::CrossAttention& cross, const ParameterFactory& make,
                   PositionTables& positions);

  const arch::CrossAttention& spec() const { return spec_; }
  /// x [batch, seq, d_model] → [batch, seq, n_heads, head_dim], with RoPE positions from `offset` on.
  Tensor queries(const Tensor& x, int64_t offset) const;
  /// Keys and values of source [batch, seq, d_source]. Each row consists of `parts` texts of equal length; RoPE
  /// positions start at 0 in each.
  CrossKeys keys(const Tensor& source, int64_t parts = 1) const;
  /// Every query attends to every key of its row. Applies attention dropout during training.
  Tensor attend(const Tensor& q, const CrossKeys& keys, ForwardContext& pass) const;
  /// Output projection: y [batch, seq, n_heads, head_dim], or any shape with as many elements → [batch, seq, d_model].
  Tensor output(const Tensor& y, int64_t batch, int64_t seq) const;

 private:
  arch::CrossAttention spec_;
  Linear q_;
  PackedLinear kv_;
  Linear o_;
  RotaryPosition* rotary_ = nullptr;  ///< null: no RoPE
};

}  // namespace lamina::nn
