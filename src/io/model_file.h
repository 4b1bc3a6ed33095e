#pragma once

#include <optional>
#include <string>

#include "lamina/io/checkpoint.h"

namespace lamina::io {

struct ReadOptions {
  std::optional<DType> dtype;  ///< convert weights to this type; default as stored
  Progress progress;
};
/// Where the model of `path` lies: for the folder of a training run (recipe.json), its best checkpoint, or the last
/// where there is no best one; else `path` itself.
std::string model_place(const std::string& path);

/// A model in any format that is read: a folder of Hugging Face (config.json) or our own (architecture.json), that of a
/// training run, or a llama2.c file.
Checkpoint read_model(const std::string& path, const Device& device, const ReadOptions& options = {});

}  // namespace lamina::io
