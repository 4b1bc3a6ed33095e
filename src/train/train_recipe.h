#pragma once

#include <string>

#include "lamina/train/trainer.h"

namespace lamina::train {

/// Options of train_recipe().
struct TrainRecipeOptions {
  bool force = false;          ///< replace an existing run; see StartOptions
  bool ignore_memory = false;  ///< start even if the memory estimate exceeds the device's memory
  Watcher watcher;             ///< callbacks, and a way to stop early
};

/// Trains by a recipe from start to end and returns the final progress. `folder` becomes the folder of the run. It must
/// not exist yet, unless `force` is set. infer::load_model(folder, …) then loads the trained model. If a run fails
/// before its first update, the run it was to replace stays. To continue a stopped run, use Trainer.
Progress train_recipe(const Recipe& recipe, const std::string& folder, const Device& device,
                      const TrainRecipeOptions& options = {});

}  // namespace lamina::train
