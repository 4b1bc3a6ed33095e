#pragma once

#include <vector>

#include "lamina/autograd/tape.h"
#include "lamina/data/batches.h"
#include "lamina/nn/model.h"
#include "lamina/tensor/replay.h"
#include "lamina/train/optimizer.h"
#include "lamina/train/pass.h"
#include "lamina/train/recipe.h"

namespace lamina::train {

/// One AdamW update on the GPU. The host copies in the batches and a few scalars, replays the CUDA graph of the whole
/// step, and reads back the loss and the norm. Per-step values (learning rate, bias corrections, random streams) live
/// in device memory, so the first updates, which are not replayed yet, are bit-identical to replayed ones.
class DeviceUpdate {
 public:
  /// Whether a recipe supports this: a GPU, AdamW, and rows of one document each.
  static bool possible(const Recipe& recipe, const Device& device, const Optimizer& optimizer);

  /// `rates` are the learning rates of the parameter groups before the schedule is applied.
  DeviceUpdate(nn::Model& model, Tape& tape, AdamW& optimizer, const Recipe& recipe, const std::vector<double>& rates);

  struct Result {
    double loss = 0;
    double grad_norm = 0;  ///< before clipping; if it is not finite, nothing was updated
  };
  /// Starts update `step`. `batches` holds one batch per pass; all have the shape of the first one ever given.
  void start(int64_t step, const std::vector<data::Batch>& batches, double lr_factor);
  /// Waits for the started update.
  Result finish();

 private:
  void work();

  nn::Model& model_;
  Tape& tape_;
  AdamW& optimizer_;
  const Recipe& recipe_;
  std::vector<PassInput> inputs_;  ///< one per pass; their addresses are part of the CUDA graph
  Tensor dynamics_;                ///< [4], layout in ops::AdamWOptions
  Tensor report_;                  ///< [passes + 1]: losses, then the gradient norm
  Replay replay_;
};

}  // namespace lamina::train
