#pragma once

#include <memory>

#include "lamina/nn/embedding.h"
#include "lamina/nn/forward_start.h"
#include "lamina/nn/layer_stack.h"

namespace lamina::nn {

/// The encoder of an encoder–decoder: embedding, layers and final norm. Its parameters have the names of
/// arch::encoder_outer_weights, and of arch::block_weights under "layers.<i>.".
class Encoder final : public Module {
 public:
  /// `table` is the decoder's embedding, whose token table may be shared; it must outlive the encoder.
  Encoder(const arch::ArchSpec& spec, const ParameterFactory& make, const TokenEmbedding& table);

  /// Reads `options.source`. Losses of its layers are appended to `losses`.
  EncodedSource forward(const RunOptions& options, std::vector<Tensor>& losses);

 private:
  arch::ArchSpec stack_;
  PositionTables positions_;
  TokenEmbedding embedding_;
  LayerStack layers_;
  std::optional<NormLayer> final_norm_;
};

}  // namespace lamina::nn
