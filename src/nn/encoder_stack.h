#pragma once

#include <optional>

#include "lamina/nn/embedding.h"
#include "lamina/nn/layer_stack.h"

namespace lamina::nn {

/// Embedding, layers and final norm of an encoder. Parameters are "embedding.…", "position.…", "layers.<i>.…" and
/// "final_norm.…".
class EncoderStack final : public Module {
 public:
  /// With `shared`, the stack uses the token table of that embedding, which must outlive the stack.
  EncoderStack(const arch::ArchSpec& spec, const ParameterFactory& make, const TokenEmbedding* shared);

  /// ids [batch, seq] → [batch, seq, d_model]. Appends auxiliary losses of the layers to pass.losses. With
  /// `checkpoint`, each layer's activations are recomputed in its backward pass.
  Tensor forward(const Tensor& ids, ForwardContext& pass, Tape* checkpoint);

 private:
  arch::ArchSpec spec_;
  PositionTables positions_;
  TokenEmbedding embedding_;
  LayerStack layers_;
  std::optional<NormLayer> final_norm_;
};

}  // namespace lamina::nn
