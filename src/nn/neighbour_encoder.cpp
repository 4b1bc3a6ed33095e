#include "lamina/nn/neighbour_encoder.h"

#include <algorithm>

namespace lamina::nn {
namespace {

bool has_cross(const std::vector<arch::LayerGroup>& layers) {
  const std::vector<const arch::Block*> blocks = arch::layer_blocks(layers);
  return std::any_of(blocks.begin(), blocks.end(), [](const arch::Block* block) { return block->cross.has_value(); });
}

}  // namespace

NeighbourEncoder::NeighbourEncoder(const arch::ArchSpec& spec, const ParameterFactory& make,
                                   const TokenEmbedding& table)
    : retrieval_(*spec.retrieval),
      reads_chunks_(has_cross(spec.retrieval->layers)),
      stack_(arch::neighbour_stack(spec)),
      positions_(stack_, make.at("position")),
      embedding_(stack_, make.at("embedding"), positions_, *spec.retrieval->shared_embedding ? &table : nullptr) {
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

void NeighbourEncoder::check_ids(const Tensor& ids, int64_t batch, int64_t chunks) const {
  const Shape expected{batch, chunks, retrieval_.neighbours, retrieval_.length};
  LAMINA_CHECK(ids.shape() == expected && (ids.dtype() == DType::i64 || ids.dtype() == DType::i32),
               "model: neighbours are ", ids.dtype(), " ", ids.shape(), ", expected i64 or i32 ", expected,
               ": rows, chunks of ", retrieval_.chunk, " tokens that end in this pass, neighbours, tokens of each");
}

Tensor NeighbourEncoder::forward(const Tensor& ids, const Tensor& states, ForwardContext& pass) {
  const int64_t chunks = ids.dim(0) * ids.dim(1);
  ForwardContext own;
  own.batch = chunks * ids.dim(2);
  own.seq = ids.dim(3);
  own.training = pass.training;
  own.dropout = pass.dropout;
  own.seed = pass.seed;
  own.step = pass.step;
  own.first_row = pass.first_row * ids.dim(1) * ids.dim(2);
  own.stream = LayerStack::kEncoderStreams;
  own.source.states = states;
  ResidualStream stream{embedding_.forward(ids.reshape({own.batch, own.seq}), own), {}};
  stream = layers_.forward(std::move(stream), own, nullptr, nullptr, LayerStack::kEncoderStreams);
  pass.losses.insert(pass.losses.end(), own.losses.begin(), own.losses.end());
  const Tensor out = final_norm_ ? stream.normed(*final_norm_) : stream.value();
  return out.reshape({chunks, ids.dim(2) * ids.dim(3), out.dim(2)});
}

}  // namespace lamina::nn
