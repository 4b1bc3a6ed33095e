#include "lamina/train/train_recipe.h"

#include <utility>

#include "lamina/train/memory.h"

namespace lamina::train {

Progress train_recipe(const Recipe& recipe, const std::string& folder, const Device& device,
                      const TrainRecipeOptions& options) {
  const auto approve = [&](const Recipe& resolved) {
    if (!options.ignore_memory) check_memory(resolved, device);
  };
  RunLock lock = start_run(folder, recipe, {.force = options.force, .approve = approve, .watch = {}});
  try {
    Trainer trainer(folder, device, {.lock = std::move(lock), .accept_new_data = false, .checking = {}});
    trainer.run(options.watcher);
    return trainer.progress();
  } catch (...) {
    restore_replaced_run(folder);
    throw;
  }
}

}  // namespace lamina::train
