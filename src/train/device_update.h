#pragma once

#include <vector>

#include "lamina/autograd/tape.h"
#include "lamina/data/batches.h"
#include "lamina/nn/model.h"
#include "lamina/tensor/replay.h"
#include "lamina/train/optimizer.h"
#include "lamina/train/recipe.h"

namespace lamina::train {

/// One update of AdamW with everything on the GPU: the host puts batches and a few numbers in, launches one record of
/// the whole step and reads the loss and the norm. What changes from step to step (learning rate, bias corrections,
/// random streams) lies in device memory, so that the first updates, which are not yet replayed, have the same bits.
class DeviceUpdate {
 public:
  /// Whether a recipe's updates can be made so: on a GPU, by AdamW, on rows that are one document each.
  static bool possible(const Recipe& recipe, const Device& device, const Optimizer& optimizer);

  /// `rates` are the groups' learning rates before the schedule.
  DeviceUpdate(nn::Model& model, Tape& tape, AdamW& optimizer, const Recipe& recipe, const std::vector<double>& rates);

  struct Result {
    double loss = 0;
    double grad_norm = 0;  ///< before clipping; not finite where nothing was updated
  };
  /// Starts update `step` on its passes' batches, which all have the recipe's shape.
  void start(int64_t step, const std::vector<data::Batch>& batches, double lr_factor);
  /// Waits for it.
  Result finish();

 private:
  void work();

  nn::Model& model_;
  Tape& tape_;
  AdamW& optimizer_;
  const Recipe& recipe_;
  std::vector<Tensor> ids_;
  std::vector<Tensor> targets_;
  Tensor dynamics_;  ///< [4], as ops::AdamWOptions says
  Tensor report_;    ///< [passes + 1]: losses, then the norm
  Replay replay_;
};

}  // namespace lamina::train
