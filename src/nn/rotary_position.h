#pragma once

#include "lamina/arch/position.h"
#include "lamina/nn/forward_context.h"
#include "lamina/ops/attention/attention_step.h"
#include "lamina/ops/attention/rotary_attention.h"
#include "lamina/ops/linear/norm_linear.h"
#include "lamina/ops/position/norm_rotary.h"
#include "lamina/ops/position/tables.h"

namespace lamina::nn {

/// Rotary positions (RoPE) with one setting, shared by all layers that use it. The tables are computed on demand and
/// grow. They are not part of a checkpoint.
class RotaryPosition {
 public:
  /// `rope` must come from a resolved spec.
  explicit RotaryPosition(const arch::Rope& rope);

  const arch::Rope& rope() const { return rope_; }
  /// Whether the frequencies depend on the sequence length. Layers may cache rotated keys even then: the model
  /// recomputes its cache when the frequencies change (see Model::cached_logits).
  bool depends_on_length() const { return depends_on_length_; }

  /// Rotates the first rotary_dim elements of each head of x [batch, seq, heads, ≥ rotary_dim]. The positions come from
  /// `pass`.
  Tensor rotate(const Tensor& x, const ForwardContext& pass);
  /// rotate(rms_norm(x)).
  Tensor rotate_normed(const Tensor& x, const ops::RowNorm& norm, const ForwardContext& pass);
  /// Norm and RoPE for the queries and keys in a packed projection qkv [batch, seq, n_heads + 2 n_kv_heads, head_dim].
  /// The norms may differ only in their weights. Requires !frequencies_differ_by_row(pass).
  ops::NormedHeads rotate_normed(const Tensor& qkv, int64_t n_heads, int64_t n_kv_heads, const ops::RowNorm& q_norm,
                                 const ops::RowNorm& k_norm, const ForwardContext& pass);
  /// Rotates the first `heads` heads of a packed projection x [batch, seq, all heads, ≥ rotary_dim] in place.
  Tensor rotate_packed(const Tensor& x, int64_t heads, const ForwardContext& pass);
  /// Tables and options for ops::rotary_attention. Requires rotates().
  ops::HeadRotation rotation(const ForwardContext& pass, const Device& device);
  bool rotates() const { return *rope_.rotary_dim != 0; }
  /// Tables and options for ops::attention_step, with one token per row.
  ops::StepRotation step_rotation(const ForwardContext& pass, const Device& device);
  /// Whether each row needs its own frequencies: they depend on the length, and the rows' lengths differ.
  bool frequencies_differ_by_row(const ForwardContext& pass) const;

 private:
  /// Tables for at least `rows` positions, with the frequencies for a sequence of `length` tokens.
  const ops::RotaryTables& tables(int64_t rows, int64_t length, const Device& device);
  ops::RotaryOptions options(const ForwardContext& pass) const;

  arch::Rope rope_;
  bool depends_on_length_;
  int64_t length_ = -1;  ///< sequence length that the tables were built for, if they depend on it
  ops::RotaryTables tables_;
};

}  // namespace lamina::nn
