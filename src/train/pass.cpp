#include "lamina/train/pass.h"

namespace lamina::train {

Tensor pass_loss(nn::Model& model, Tape& tape, const Recipe& recipe, const PassInput& input) {
  nn::RunOptions run{.training = true,
                     .dropout = {recipe.dropout.embedding, recipe.dropout.attention, recipe.dropout.residual},
                     .seed = static_cast<uint64_t>(recipe.seed),
                     .step = input.index,
                     .first_row = input.first_row,
                     .checkpoint = recipe.checkpointing ? &tape : nullptr};
  run.document_starts = input.document_starts;
  return model.loss(input.ids, input.targets, {.label_smoothing = recipe.label_smoothing, .z_loss = recipe.z_loss}, run)
      .total;
}

void run_passes(nn::Model& model, Tape& tape, const Recipe& recipe, int64_t count, const PassInputAt& input_at,
                const OnPassLoss& on_loss) {
  const double share = 1.0 / static_cast<double>(recipe.accumulation);
  tape.zero_grad();
  for (int64_t i = 0; i < count; ++i) {
    const Tensor loss = pass_loss(model, tape, recipe, input_at(i));
    if (!on_loss || on_loss(i, loss)) {
      tape.backward({loss}, {Tensor::full(loss.shape(), share, loss.dtype(), loss.device())});
    } else {
      tape.reset();
    }
  }
}

}  // namespace lamina::train
