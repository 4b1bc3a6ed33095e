#pragma once

#include <vector>

#include "lamina/nn/layer.h"
#include "lamina/nn/model_cache.h"

namespace lamina {
class Tape;
}

namespace lamina::nn {

/// The numbered layers of a decoder or an encoder.
class LayerStack final : public Module {
 public:
  /// Random streams of an encoder begin here, so that it shares none with its decoder.
  static constexpr uint64_t kEncoderStreams = uint64_t{1} << 19U;

  /// `first` is the number of the first layer, if a pipeline stage has only some of them.
  explicit LayerStack(int64_t first = 0) : first_(first) {}

  /// Appends a layer under the name of its number.
  void add(std::unique_ptr<Layer> layer);
  const std::vector<std::unique_ptr<Layer>>& all() const { return all_; }

  /// Runs all layers. With `checkpoint` each layer's activations are recomputed in its backward pass.
  ResidualStream forward(ResidualStream stream, ForwardContext& pass, ModelCache* cache, Tape* checkpoint,
                         uint64_t first_stream = 0);

 private:
  ResidualStream checkpointed(Tape& tape, size_t index, const ResidualStream& stream, ForwardContext& pass);

  int64_t first_;
  std::vector<std::unique_ptr<Layer>> all_;
};

}  // namespace lamina::nn
