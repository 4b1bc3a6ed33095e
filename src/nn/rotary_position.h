#pragma once

#include "lamina/arch/position.h"
#include "lamina/nn/pass.h"
#include "lamina/ops/position/rotary.h"
#include "lamina/ops/position/tables.h"

namespace lamina::nn {

/// One way of rotating queries and keys, shared by all layers that have it. The tables are made when needed, where
/// needed, and grow; no checkpoint holds them.
class RotaryPosition {
 public:
  /// A resolved rotation.
  explicit RotaryPosition(const arch::Rope& rope);

  const arch::Rope& rope() const { return rope_; }
  /// The angles of all positions change as the sequence grows: a cache must keep unrotated keys and rotate them anew
  /// with rotate_from_start, or a cached step would differ from a forward over all tokens.
  bool depends_on_length() const { return depends_on_length_; }

  /// x [batch, seq, heads, at least rotary_dim] of the tokens of `pass`; the first rotary_dim elements are rotated.
  Tensor rotate(const Tensor& x, const Pass& pass);
  /// x [rows, n, heads, at least rotary_dim]: the positions 0 … n−1 of sequences that are `length` tokens long now.
  Tensor rotate_from_start(const Tensor& x, int64_t length);

 private:
  /// Tables of at least `rows` positions for a sequence of `length` tokens.
  const ops::RotaryTables& tables(int64_t rows, int64_t length, const Device& device);
  ops::RotaryOptions options() const;

  arch::Rope rope_;
  bool depends_on_length_;
  int64_t length_ = -1;  ///< which the tables are for, where it matters
  ops::RotaryTables tables_;
};

}  // namespace lamina::nn
