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
      stack_(arch::neighbour_stack(spec), make, *spec.retrieval->shared_embedding ? &table : nullptr) {
  add_child("", stack_);
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
  own.recompute = pass.recompute;
  own.source.states = states;
  const Tensor out = stack_.forward(ids.reshape({own.batch, own.seq}), own, nullptr);
  pass.losses.insert(pass.losses.end(), own.losses.begin(), own.losses.end());
  return out.reshape({chunks, ids.dim(2) * ids.dim(3), out.dim(2)});
}

}  // namespace lamina::nn
