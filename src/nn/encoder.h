#pragma once

#include <memory>

#include "lamina/nn/encoder_stack.h"
#include "lamina/nn/forward_start.h"

namespace lamina::nn {

/// The encoder of an encoder–decoder model. Parameter names are those of arch::encoder_outer_weights, and of
/// arch::block_weights under "layers.<i>.".
class Encoder final : public Module {
 public:
  /// `table` is the decoder's embedding. The encoder may share its token table, so it must outlive the encoder.
  Encoder(const arch::ArchSpec& spec, const ParameterFactory& make, const TokenEmbedding& table);

  /// Encodes `options.source`. Appends auxiliary losses of the layers to `losses`.
  EncodedSource forward(const RunOptions& options, std::vector<Tensor>& losses);

 private:
  EncoderStack stack_;
};

}  // namespace lamina::nn
