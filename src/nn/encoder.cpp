#include "lamina/nn/encoder.h"

namespace lamina::nn {

Encoder::Encoder(const arch::ArchSpec& spec, const ParameterFactory& make, const TokenEmbedding& table)
    : stack_(arch::encoder_stack(spec)),
      positions_(stack_, make.at("position")),
      embedding_(stack_, make.at("embedding"), positions_, spec.encoder->shared_embedding ? &table : nullptr) {
  add_child("embedding", embedding_);
  add_child("position", positions_);
  for (const arch::Block* block : arch::layer_blocks(stack_)) {
    const std::string name = std::to_string(layers_.all().size());
    layers_.add(std::make_unique<Layer>(stack_, *block, make.at("layers").at(name), positions_));
  }
  add_child("layers", layers_);
  if (*stack_.final_norm) {
    final_norm_.emplace(stack_.norm, stack_.d_model, make.at("final_norm"));
    add_child("final_norm", *final_norm_);
  }
}

EncodedSource Encoder::forward(const RunOptions& options, std::vector<Tensor>& losses) {
  RunOptions own = options;
  own.lengths = options.source_lengths;
  own.document_starts = {};
  own.segments = {};
  own.observer = nullptr;  // it watches the decoder
  ForwardStart start = start_forward(options.source, own);
  start.pass.stream = LayerStack::kEncoderStreams;
  ResidualStream stream{embedding_.forward(start.ids, start.pass), {}};
  stream = layers_.forward(std::move(stream), start.pass, nullptr, options.checkpoint, LayerStack::kEncoderStreams);
  losses.insert(losses.end(), start.pass.losses.begin(), start.pass.losses.end());
  return {final_norm_ ? stream.normed(*final_norm_) : stream.value(), start.pass.row_starts, start.seq};
}

}  // namespace lamina::nn
