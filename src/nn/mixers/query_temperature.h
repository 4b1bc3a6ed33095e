#pragma once

#include "lamina/arch/attention.h"
#include "lamina/nn/forward_context.h"

namespace lamina::nn {

/// Factors on queries that grow with the position (arXiv:2501.19399): query i is multiplied by
///   1 + scale · ln(1 + floor((i + 1) / interval))
/// So scores grow with the number of keys, and the softmax stays sharp. Keys are not changed.
class QueryTemperature {
 public:
  explicit QueryTemperature(const arch::QueryTemperature& spec) : spec_(spec) {}

  /// Multiplies q [batch, seq, n_heads, head_dim] of the tokens of `pass` by their factors.
  Tensor apply(const Tensor& q, const ForwardContext& pass);

 private:
  /// A table of factors for at least `rows` positions: [positions, 1] f32.
  const Tensor& table(int64_t rows, const Device& device);

  arch::QueryTemperature spec_;
  Tensor table_;  ///< built on demand and grown as needed
};

}  // namespace lamina::nn
