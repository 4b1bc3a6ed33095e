#pragma once

#include "lamina/arch/position.h"
#include "lamina/nn/pass.h"
#include "lamina/ops/attention/attention_step.h"
#include "lamina/ops/attention/rotary_attention.h"
#include "lamina/ops/linear/norm_linear.h"
#include "lamina/ops/position/norm_rotary.h"
#include "lamina/ops/position/tables.h"

namespace lamina::nn {

/// One way of rotating queries and keys, shared by all layers that have it. The tables are made when needed, where
/// needed, and grow; no checkpoint holds them.
class RotaryPosition {
 public:
  /// A resolved rotation.
  explicit RotaryPosition(const arch::Rope& rope);

  const arch::Rope& rope() const { return rope_; }
  /// The angles of all positions change as the sequence grows. The model then fills its cache anew (see
  /// Model::cached_logits), so that layers may keep rotated keys.
  bool depends_on_length() const { return depends_on_length_; }

  /// x [batch, seq, heads, at least rotary_dim] of the tokens of `pass`; the first rotary_dim elements are rotated.
  Tensor rotate(const Tensor& x, const Pass& pass);
  /// The same of x's RMS norm.
  Tensor rotate_normed(const Tensor& x, const ops::RowNorm& norm, const Pass& pass);
  /// The same of the queries and keys of a joined projection qkv [batch, seq, n_heads + 2 n_kv_heads, head_dim], of
  /// norms that differ in their weights alone; only where rows turn together.
  ops::NormedHeads rotate_normed(const Tensor& qkv, int64_t n_heads, int64_t n_kv_heads, const ops::RowNorm& q_norm,
                                 const ops::RowNorm& k_norm, const Pass& pass);
  /// The same for the first `heads` heads of a joined projection x [batch, seq, all heads, rotary_dim or more], in its
  /// own memory.
  Tensor rotate_joined(const Tensor& x, int64_t heads, const Pass& pass);
  /// The same for ops::rotary_attention; only where something turns.
  ops::HeadRotation rotation(const Pass& pass, const Device& device);
  bool turns() const { return *rope_.rotary_dim != 0; }
  /// The same for ops::attention_step: one token a row.
  ops::StepRotation step_rotation(const Pass& pass, const Device& device);
  /// Rows of different lengths turn by angles of their own, one by one.
  bool turns_rows_apart(const Pass& pass) const { return depends_on_length_ && pass.ragged() && pass.batch > 1; }

 private:
  /// Tables of at least `rows` positions for a sequence of `length` tokens.
  const ops::RotaryTables& tables(int64_t rows, int64_t length, const Device& device);
  ops::RotaryOptions options(const Pass& pass) const;

  arch::Rope rope_;
  bool depends_on_length_;
  int64_t length_ = -1;  ///< which the tables are for, where it matters
  ops::RotaryTables tables_;
};

}  // namespace lamina::nn
