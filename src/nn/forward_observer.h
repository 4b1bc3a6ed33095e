#pragma once

#include <cstdint>

#include "lamina/tensor/tensor.h"

namespace lamina::nn {

/// Receives intermediate results of a forward pass over whole sequences (RunOptions::observer). Layers are numbered
/// from 0. Without an observer nothing of this is computed.
class ForwardObserver {
 public:
  ForwardObserver() = default;
  virtual ~ForwardObserver() = default;
  ForwardObserver(const ForwardObserver&) = delete;
  ForwardObserver& operator=(const ForwardObserver&) = delete;

  /// Whether attention() is to be called for a layer. Layers without attention never call it.
  virtual bool wants_attention(int64_t layer) const = 0;
  /// Attention weights after the softmax, weights [batch, seq, n_heads, n]: how much each query reads of the keys at
  /// positions first_key … first_key + n − 1. Called for successive ranges of keys. The weights of a query sum to 1, or
  /// to less if the layer has attention sinks.
  virtual void attention(int64_t layer, int64_t first_key, const Tensor& weights) = 0;
  /// Whether residual() is to be called.
  virtual bool wants_residual() const = 0;
  /// The residual stream after a layer, x [batch, seq, d_model].
  virtual void residual(int64_t layer, const Tensor& x) = 0;
};

}  // namespace lamina::nn
