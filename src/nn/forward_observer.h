#pragma once

#include <cstdint>

#include "lamina/tensor/tensor.h"

namespace lamina::nn {

/// Receives intermediate results of a forward pass over whole sequences (RunOptions::observer). Layers are numbered
/// from 0. Without an observer these results are not computed.
class ForwardObserver {
 public:
  ForwardObserver() = default;
  virtual ~ForwardObserver() = default;
  ForwardObserver(const ForwardObserver&) = delete;
  ForwardObserver& operator=(const ForwardObserver&) = delete;

  /// Whether to call attention() for this layer. Layers without attention never call it.
  virtual bool wants_attention(int64_t layer) const = 0;
  /// Attention weights after the softmax: weights [batch, seq, n_heads, n] of each query on the keys at positions
  /// first_key … first_key + n − 1. Called once per range of keys. A query's weights sum to 1 over all ranges, or to
  /// less if the layer has attention sinks.
  virtual void attention(int64_t layer, int64_t first_key, const Tensor& weights) = 0;
  /// Whether to call residual().
  virtual bool wants_residual() const = 0;
  /// The residual stream after a layer, x [batch, seq, d_model].
  virtual void residual(int64_t layer, const Tensor& x) = 0;
};

}  // namespace lamina::nn
