#include "lamina/nn/encoder.h"

namespace lamina::nn {

Encoder::Encoder(const arch::ArchSpec& spec, const ParameterFactory& make, const TokenEmbedding& table)
    : stack_(arch::encoder_stack(spec), make, spec.encoder->shared_embedding ? &table : nullptr) {
  add_child("", stack_);
}

EncodedSource Encoder::forward(const RunOptions& options, std::vector<Tensor>& losses) {
  RunOptions own = options;
  own.lengths = options.source_lengths;
  own.document_starts = {};
  own.segments = {};
  own.observer = nullptr;  // the observer watches only the decoder
  ForwardStart start = start_forward(options.source, own);
  const Tensor states = stack_.forward(start.ids, start.pass, options.checkpoint);
  losses.insert(losses.end(), start.pass.losses.begin(), start.pass.losses.end());
  return {states, start.pass.row_starts, start.seq};
}

}  // namespace lamina::nn
