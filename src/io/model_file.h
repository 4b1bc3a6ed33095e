#pragma once

#include <optional>
#include <string>

#include "lamina/io/checkpoint.h"

namespace lamina::io {

/// Options of read_model().
struct ReadOptions {
  std::optional<DType> dtype;  ///< convert weights to this type; default: as stored
  Progress progress;           ///< called with bytes read; may be empty
};
/// Resolves `path` to the model's location. For the folder of a training run (with recipe.json): its best checkpoint
/// or, if there is none, the last one. For a folder of sentence-transformers: the encoder's folder in it. Otherwise
/// `path` itself.
std::string model_place(const std::string& path);

/// Reads a model in any supported format: a Hugging Face folder (config.json), Lamina's own format (architecture.json),
/// the folder of a training run, or a llama2.c file.
Checkpoint read_model(const std::string& path, const Device& device, const ReadOptions& options = {});

}  // namespace lamina::io
