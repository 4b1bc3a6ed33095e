#include "lamina/train/chunk_gradients.h"

#include "lamina/arch/layers.h"
#include "lamina/train/divided_weights.h"

namespace lamina::train {

ChunkGradients::ChunkGradients(Tape& tape, NamedTensors parameters, const nn::Model& model) : tape_(tape) {
  const auto layers = static_cast<int64_t>(arch::layer_blocks(model.spec()).size());
  for (int chunk = 0; chunk < model.stage().chunks; ++chunk) {
    const arch::UnitRange own = arch::chunk_layers(layers, model.stage(), chunk);
    std::vector<bool>& completed = completed_by_.emplace_back();
    for (const NamedTensor& parameter : parameters) {
      const int64_t layer = layer_of(parameter.name);
      completed.push_back(layer == kOuter ? chunk == 0 : layer >= own.begin && layer < own.end);
    }
  }
  for (NamedTensor& parameter : parameters) {
    if (layer_of(parameter.name) == kOuter) outside_.push_back(std::move(parameter));
  }
}

void ChunkGradients::restore(int64_t micro_batch) {
  const auto found = kept_.find(micro_batch);
  if (found == kept_.end()) return;
  for (size_t i = 0; i < outside_.size(); ++i) tape_.set_grad(outside_[i].tensor, std::move(found->second[i]));
  kept_.erase(found);
}

void ChunkGradients::keep(int64_t micro_batch) {
  std::vector<Tensor>& gradients = kept_[micro_batch];
  for (const NamedTensor& parameter : outside_) {
    gradients.push_back(tape_.grad(parameter.tensor));
    tape_.set_grad(parameter.tensor, Tensor());
  }
}

}  // namespace lamina::train
