#include "lamina/nn/layer_stack.h"

#include "lamina/autograd/tape.h"
#include "lamina/nn/forward_observer.h"

namespace lamina::nn {
namespace {

/// Number of random streams reserved for each layer in a step.
constexpr uint64_t kStreamsPerLayer = 64;

}  // namespace

void LayerStack::add(std::unique_ptr<Layer> layer, std::optional<int64_t> number) {
  numbers_.push_back(number.value_or(static_cast<int64_t>(all_.size())));
  add_child(std::to_string(numbers_.back()), *layer);
  all_.push_back(std::move(layer));
}

ResidualStream LayerStack::checkpointed(Tape& tape, size_t index, const ResidualStream& stream, ForwardContext& pass) {
  const auto segment = [this, index, settings = pass](const std::vector<Tensor>& inputs) {
    ForwardContext inner = settings;  // restarts the random stream counter each time the layer runs
    inner.losses.clear();
    inner.source.states = inputs[2];
    inner.neighbours.states = inputs[3];
    ResidualStream out = all_[index]->forward({inputs[0], inputs[1]}, inner, {});
    // The first layer with chunked cross-attention encodes the neighbours, for itself and all later layers.
    std::vector<Tensor> outputs{out.x, out.branch, inputs[3].defined() ? Tensor() : inner.neighbours.states};
    outputs.insert(outputs.end(), inner.losses.begin(), inner.losses.end());
    return outputs;
  };
  const std::vector<Tensor> outputs =
      checkpoint(tape, segment, {stream.x, stream.branch, pass.source.states, pass.neighbours.states});
  if (outputs[2].defined()) pass.neighbours.states = outputs[2];
  pass.neighbours.encoded = pass.neighbours.states.defined();
  pass.losses.insert(pass.losses.end(), outputs.begin() + 3, outputs.end());
  return {outputs[0], outputs[1]};
}

ResidualStream LayerStack::forward(ResidualStream stream, ForwardContext& pass, ModelCache* cache, Tape* checkpoint,
                                   uint64_t first_stream, std::optional<arch::UnitRange> only) {
  for (size_t i = 0; i < all_.size(); ++i) {
    if (only && (numbers_[i] < only->begin || numbers_[i] >= only->end)) continue;
    pass.layer = numbers_[i];
    pass.stream = first_stream + (static_cast<uint64_t>(pass.layer) + 1) * kStreamsPerLayer;
    if (weights_ != nullptr) weights_->before_forward(pass.layer);
    stream = checkpoint != nullptr
                 ? checkpointed(*checkpoint, i, stream, pass)
                 : all_[i]->forward(std::move(stream), pass, cache == nullptr ? LayerCaches{} : cache->layer(i));
    if (weights_ != nullptr) weights_->after_forward(pass.layer);
    if (pass.observer != nullptr && pass.observer->wants_residual()) {
      pass.observer->residual(pass.layer, stream.value());
    }
  }
  return stream;
}

}  // namespace lamina::nn
