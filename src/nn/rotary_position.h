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
/// grow; they are not part of a checkpoint.
class RotaryPosition {
 public:
  /// Takes a resolved spec.
  explicit RotaryPosition(const arch::Rope& rope);

  const arch::Rope& rope() const { return rope_; }
  /// Whether the frequencies depend on the sequence length. If so, the model recomputes its cache when they change (see
  /// Model::cached_logits), so layers may cache rotated keys.
  bool depends_on_length() const { return depends_on_length_; }

  /// Rotates the first rotary_dim elements of each head of x [batch, seq, heads, ≥ rotary_dim], the tokens of `pass`.
  Tensor rotate(const Tensor& x, const ForwardContext& pass);
  /// rotate(rms_norm(x)).
  Tensor rotate_normed(const Tensor& x, const ops::RowNorm& norm, const ForwardContext& pass);
  /// rotate(norm(·)) of the queries and keys in a packed projection qkv [batch, seq, n_heads + 2 n_kv_heads, head_dim].
  /// The norms may differ in their weights only. Requires !turns_rows_apart(pass).
  ops::NormedHeads rotate_normed(const Tensor& qkv, int64_t n_heads, int64_t n_kv_heads, const ops::RowNorm& q_norm,
                                 const ops::RowNorm& k_norm, const ForwardContext& pass);
  /// Rotates the first `heads` heads of a packed projection x [batch, seq, all heads, ≥ rotary_dim] in place.
  Tensor rotate_joined(const Tensor& x, int64_t heads, const ForwardContext& pass);
  /// Tables and options for ops::rotary_attention; requires turns().
  ops::HeadRotation rotation(const ForwardContext& pass, const Device& device);
  bool turns() const { return *rope_.rotary_dim != 0; }
  /// Tables and options for ops::attention_step: one token per row.
  ops::StepRotation step_rotation(const ForwardContext& pass, const Device& device);
  /// Whether each row needs its own frequencies, because they depend on the length and the rows' lengths differ.
  bool turns_rows_apart(const ForwardContext& pass) const;

 private:
  /// Tables of at least `rows` positions for a sequence of `length` tokens.
  const ops::RotaryTables& tables(int64_t rows, int64_t length, const Device& device);
  ops::RotaryOptions options(const ForwardContext& pass) const;

  arch::Rope rope_;
  bool depends_on_length_;
  int64_t length_ = -1;  ///< sequence length the tables were built for, if they depend on it
  ops::RotaryTables tables_;
};

}  // namespace lamina::nn
