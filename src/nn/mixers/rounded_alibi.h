#pragma once

#include <vector>

#include "lamina/nn/forward_context.h"

namespace lamina::nn {

/// ALiBi with biases rounded to bf16. Let r() round to bf16 and let t be the position of key j. The scores of head h
/// get the bias
///   slope_scale · r(r(slope_h) · r(t))
/// Unlike slope · distance, this depends on absolute positions, so the attention operator's ALiBi cannot compute it.
/// Instead the bias is appended to queries and keys. With m query heads per KV head:
///   q'_h = [q_h, onehot(h mod m)]
///   k'_g = [k_g, factor · r(r(slope_{gm}) · r(t)), …, factor · r(r(slope_{gm+m-1}) · r(t))]
/// factor = slope_scale / scale undoes the attention's scale. The biases are constants without gradient. Positions are
/// absolute, so extended keys can be cached.
class RoundedAlibi {
 public:
  /// slopes: one per head, before slope_scale.
  RoundedAlibi(const std::vector<float>& slopes, int64_t n_kv_heads, double factor);

  int64_t width() const { return static_cast<int64_t>(slopes_.size()) / n_kv_heads_; }
  /// [batch, seq, n_heads, d] → [batch, seq, n_heads, d + width].
  Tensor extend_queries(const Tensor& q);
  /// [batch, seq, n_kv_heads, d] of the tokens of `pass` → [batch, seq, n_kv_heads, d + width].
  Tensor extend_keys(const Tensor& k, const ForwardContext& pass);

 private:
  /// A table of biases for at least `rows` positions: [positions, n_heads] f32.
  const Tensor& table(int64_t rows, const Device& device);

  std::vector<float> slopes_;  ///< rounded to bf16
  int64_t n_kv_heads_;
  double factor_;
  Tensor one_hot_;  ///< [1, 1, n_heads, width] on the device that used it last
  Tensor table_;    ///< biases by position; built on demand and grown as needed
};

}  // namespace lamina::nn
