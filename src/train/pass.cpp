#include "lamina/train/pass.h"

namespace lamina::train {

Tensor pass_loss(nn::Model& model, Tape& tape, const Recipe& recipe, const PassInput& input) {
  nn::RunOptions run{.training = true,
                     .dropout = {recipe.dropout.embedding, recipe.dropout.attention, recipe.dropout.residual},
                     .seed = static_cast<uint64_t>(recipe.seed),
                     .step = input.index,
                     .checkpoint = recipe.checkpointing ? &tape : nullptr};
  run.document_starts = input.document_starts;
  return model.loss(input.ids, input.targets, {.label_smoothing = recipe.label_smoothing, .z_loss = recipe.z_loss}, run)
      .total;
}

void pass_backward(Tape& tape, const Recipe& recipe, const Tensor& loss) {
  const double share = 1.0 / static_cast<double>(recipe.accumulation);
  tape.backward({loss}, {Tensor::full(loss.shape(), share, loss.dtype(), loss.device())});
}

}  // namespace lamina::train
