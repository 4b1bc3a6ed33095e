#pragma once

#include "lamina/tensor/named_tensor.h"

namespace lamina::nn {

/// Told when a model needs the weights of its numbered layers, so that they can be elsewhere in between (ZeRO-3). The
/// weights outside of these layers must be there in every forward and backward pass.
class LayerWeights {
 public:
  virtual ~LayerWeights() = default;
  LayerWeights(const LayerWeights&) = delete;
  LayerWeights& operator=(const LayerWeights&) = delete;

  /// These parameters have got their initial values. The model calls it after each layer that it creates, and for all
  /// parameters at the end. Names are those of named_parameters().
  virtual void created(const NamedTensors& parameters) = 0;
  virtual void before_forward(int64_t layer) = 0;  ///< the layer's weights are used next
  virtual void after_forward(int64_t layer) = 0;   ///< not before backward again

 protected:
  LayerWeights() = default;
};

}  // namespace lamina::nn
