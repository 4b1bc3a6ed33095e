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

/// One AdamW update on the GPU. The host copies the batches and a few scalars to the device, replays the CUDA graph of
/// the whole step, and reads back the loss and the gradient norm. Per-step values (learning rate, bias corrections,
/// random streams) are in device memory, so the first updates, which run before capture, are bit-identical to replayed
/// ones.
class DeviceUpdate {
 public:
  /// Whether a recipe supports this: it needs a GPU, AdamW, and rows that consist of one document each.
  static bool possible(const Recipe& recipe, const Device& device, const Optimizer& optimizer);

  /// `rates` are the learning rates of the parameter groups, before the schedule is applied.
  DeviceUpdate(nn::Model& model, Tape& tape, AdamW& optimizer, const Recipe& recipe, const std::vector<double>& rates);

  struct Result {
    double loss = 0;
    double grad_norm = 0;  ///< before clipping; if it is not finite, nothing was updated
  };
  /// Starts update `step`. `batches` holds one batch per pass. All batches of all updates must have the same shape.
  void start(int64_t step, const std::vector<data::Batch>& batches, double lr_factor);
  /// Waits for the update and returns its result.
  Result finish();

 private:
  void work();

  nn::Model& model_;
  Tape& tape_;
  AdamW& optimizer_;
  const Recipe& recipe_;
  std::vector<PassInput> inputs_;  ///< one per pass; the CUDA graph refers to their addresses
  Tensor dynamics_;                ///< [4]; layout as in ops::AdamWOptions
  Tensor report_;                  ///< [passes + 1]: losses, then the gradient norm
  Replay replay_;
};

}  // namespace lamina::train
