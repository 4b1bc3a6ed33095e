#pragma once

#include <optional>
#include <vector>

#include "lamina/arch/tensor_shards.h"
#include "lamina/nn/layer.h"
#include "lamina/nn/layer_weights.h"
#include "lamina/nn/model_cache.h"

namespace lamina {
class Tape;
}

namespace lamina::nn {

/// The numbered layers of a decoder or an encoder.
class LayerStack final : public Module {
 public:
  /// First random stream of an encoder, so that it shares none with its decoder.
  static constexpr uint64_t kEncoderStreams = uint64_t{1} << 19U;

  /// `weights` is called before and after each layer runs; null: no calls. It must outlive the stack.
  explicit LayerStack(LayerWeights* weights = nullptr) : weights_(weights) {}

  /// Appends a layer. Its number is part of its name: `number` if given (a pipeline stage has only some layers),
  /// otherwise the next one.
  void add(std::unique_ptr<Layer> layer, std::optional<int64_t> number = {});
  const std::vector<std::unique_ptr<Layer>>& all() const { return all_; }

  /// Runs all layers, or only those whose numbers are in `only`. With `checkpoint`, each layer's activations are
  /// recomputed in its backward pass.
  ResidualStream forward(ResidualStream stream, ForwardContext& pass, ModelCache* cache, Tape* checkpoint,
                         uint64_t first_stream = 0, std::optional<arch::UnitRange> only = {});

 private:
  ResidualStream checkpointed(Tape& tape, size_t index, const ResidualStream& stream, ForwardContext& pass);

  LayerWeights* weights_;
  std::vector<int64_t> numbers_;  ///< number of each layer
  std::vector<std::unique_ptr<Layer>> all_;
};

}  // namespace lamina::nn
