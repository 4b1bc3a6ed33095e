#pragma once

#include <memory>

#include "lamina/nn/encoder_stack.h"
#include "lamina/nn/forward_start.h"

namespace lamina::nn {

/// The encoder of an encoder–decoder. Its parameters have the names of
/// arch::encoder_outer_weights, and of arch::block_weights under "layers.<i>.".
class Encoder final : public Module {
 public:
  /// `table` is the decoder's embedding, whose token table may be shared; it must outlive the encoder.
  Encoder(const arch::ArchSpec& spec, const ParameterFactory& make, const TokenEmbedding& table);

  /// Reads `options.source`. Losses of its layers are appended to `losses`.
  EncodedSource forward(const RunOptions& options, std::vector<Tensor>& losses);

 private:
  EncoderStack stack_;
};

}  // namespace lamina::nn
