#include "lamina/nn/encoder_stack.h"

namespace lamina::nn {

EncoderStack::EncoderStack(const arch::ArchSpec& spec, const ParameterFactory& make, const TokenEmbedding* shared)
    : spec_(spec), positions_(spec_, make.at("position")), embedding_(spec_, make.at("embedding"), positions_, shared) {
  add_child("embedding", embedding_);
  add_child("position", positions_);
  for (const arch::Block* block : arch::layer_blocks(spec_)) {
    const std::string name = std::to_string(layers_.all().size());
    layers_.add(std::make_unique<Layer>(spec_, *block, make.at("layers").at(name), positions_));
  }
  add_child("layers", layers_);
  if (*spec_.final_norm) {
    final_norm_.emplace(spec_.norm, spec_.d_model, make.at("final_norm"));
    add_child("final_norm", *final_norm_);
  }
}

Tensor EncoderStack::forward(const Tensor& ids, ForwardContext& pass, Tape* checkpoint) {
  pass.stream = LayerStack::kEncoderStreams;
  ResidualStream stream{embedding_.forward(ids, pass), {}};
  stream = layers_.forward(std::move(stream), pass, nullptr, checkpoint, LayerStack::kEncoderStreams);
  return final_norm_ ? stream.normed(*final_norm_) : stream.value();
}

}  // namespace lamina::nn
