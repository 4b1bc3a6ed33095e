#pragma once

#include <string>

#include "lamina/train/trainer.h"

namespace lamina::train {

/// Options of train_recipe().
struct TrainRecipeOptions {
  bool force = false;          ///< replace an existing run, as in StartOptions
  bool ignore_memory = false;  ///< start although the memory estimate exceeds what the device has
  Watcher watcher;             ///< callbacks, and a way to stop early
};

/// Trains by a recipe from start to end and returns the final progress. `folder` becomes the folder of the run: it must
/// not exist yet, unless `force` is set. infer::load_model(folder, …) then loads the trained model. A run that fails
/// before its first update leaves the replaced run in place. To continue a stopped run, use Trainer.
Progress train_recipe(const Recipe& recipe, const std::string& folder, const Device& device,
                      const TrainRecipeOptions& options = {});

}  // namespace lamina::train
