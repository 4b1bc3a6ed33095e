#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lamina/io/checkpoint.h"

namespace lamina::io {

/// The model_types of Hugging Face checkpoints that are read and written.
std::vector<std::string> hf_model_types();

struct HfReadOptions {
  std::optional<DType> dtype;  ///< convert weights to this type; default as stored
  Progress progress;
};
/// A folder with config.json and model.safetensors, or shards named by model.safetensors.index.json. Weights stored as
/// ours, alone or joined row after row, are views of the mapped files; others (transposed, interleaved, one tensor per
/// expert) are copied and the memory of what was copied from is given back. A key of config.json that is not understood
/// is an Error that names it; so is a tensor that is missing, has another shape, or has no place in the model.
Checkpoint read_hf(const std::string& folder, const Device& device, const HfReadOptions& options = {});

/// The architecture alone, resolved, from the text of a config.json; `name` begins messages.
arch::ArchSpec read_hf_config(std::string_view text, const std::string& name);

struct HfWriteOptions {
  std::string family;                       ///< a model_type; default the one it was read from, or the first that fits
  std::optional<DType> dtype;               ///< convert weights to this type; default as they are
  int64_t max_shard_bytes = 5'000'000'000;  ///< files are split beyond this
  bool replace = false;                     ///< an existing checkpoint may be replaced (CheckpointFolder)
  Progress progress;
  AddFiles add_files;  ///< called with the folder before it appears, to add files
};
/// Writes a folder that Hugging Face transformers loads, whole or not at all. The family must mean exactly this
/// architecture: where none does, an Error says what differs from the nearest one. Returns the family.
std::string write_hf(const std::string& folder, const Checkpoint& checkpoint, const HfWriteOptions& options = {});

/// Tensors given under our names, such as gradients, laid out and named as transformers' parameters are in memory. A
/// parameter of which something is not given is left out.
NamedTensors hf_parameters(const std::string& model_type, const arch::ArchSpec& resolved, const NamedTensors& tensors);

}  // namespace lamina::io
