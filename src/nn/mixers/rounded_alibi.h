#pragma once

#include <vector>

#include "lamina/nn/pass.h"

namespace lamina::nn {

/// ALiBi whose biases are rounded to bf16: with r() the rounding and t the position of key j, head h's scores get
///   slope_scale · r(r(slope_h) · r(t))
/// which, unlike slope · distance, depends on where the sequence begins. So it cannot be left to the attention
/// operator; instead the bias becomes part of the product of queries and keys: with m query heads to a key head,
///   q'_h = [q_h, onehot(h mod m)]    k'_g = [k_g, factor · r(r(slope_{gm}) · r(t)), …, factor · r(r(slope_{gm+m-1}) ·
///   r(t))]
/// where factor = slope_scale / scale, the attention's own scale being a factor on the whole product. The constants get
/// no gradient. Positions are absolute, so that extended keys can be kept in a cache.
class RoundedAlibi {
 public:
  /// slopes: one for each head, before slope_scale.
  RoundedAlibi(const std::vector<float>& slopes, int64_t n_kv_heads, double factor);

  int64_t width() const { return static_cast<int64_t>(slopes_.size()) / n_kv_heads_; }
  /// [batch, seq, n_heads, d] → [batch, seq, n_heads, d + width].
  Tensor extend_queries(const Tensor& q) const;
  /// [batch, seq, n_kv_heads, d] of the tokens of `pass` → [batch, seq, n_kv_heads, d + width].
  Tensor extend_keys(const Tensor& k, const Pass& pass) const;

 private:
  std::vector<float> slopes_;  ///< rounded
  int64_t n_kv_heads_;
  double factor_;
};

}  // namespace lamina::nn
