#pragma once

#include "lamina/tensor/named_tensor.h"

namespace lamina::nn {

/// Interface for weights that are not always in memory (ZeRO-3). The model calls it before and after it uses the
/// weights of a numbered layer. All other weights must be in memory in every forward and backward pass.
class LayerWeights {
 public:
  virtual ~LayerWeights() = default;
  LayerWeights(const LayerWeights&) = delete;
  LayerWeights& operator=(const LayerWeights&) = delete;

  /// Called when parameters have their initial values: after each layer that the model creates, and for all parameters
  /// at the end. Names are those of named_parameters().
  virtual void created(const NamedTensors& parameters) = 0;
  virtual void before_forward(int64_t layer) = 0;  ///< called before the layer uses its weights
  virtual void after_forward(int64_t layer) = 0;   ///< called when the layer needs them no more until backward

 protected:
  LayerWeights() = default;
};

}  // namespace lamina::nn
