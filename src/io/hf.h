#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lamina/io/checkpoint.h"

namespace lamina::io {

/// The supported model_types of Hugging Face checkpoints.
std::vector<std::string> hf_model_types();

/// How a Hugging Face folder is read.
struct HfReadOptions {
  std::optional<DType> dtype;  ///< convert weights to this type; default: as stored
  Progress progress;           ///< bytes read; may be empty
};
/// Reads a folder with config.json and model.safetensors, or with shards listed in model.safetensors.index.json.
/// Weights stored whole, concatenated or transposed are views of the mapped files. Others (interleaved rows, one tensor
/// per expert) are copied, and their mapped pages are released. An unknown key of config.json is an Error that names
/// it; so is a tensor that is missing, has a wrong shape, or does not belong to the model.
Checkpoint read_hf(const std::string& folder, const Device& device, const HfReadOptions& options = {});

/// Reads only the architecture, resolved, from the text of a config.json. `name` begins messages.
arch::ArchSpec read_hf_config(std::string_view text, const std::string& name);

/// How a Hugging Face folder is written.
struct HfWriteOptions {
  std::string family;                       ///< a model_type; default: that of the source files, or the first that fits
  std::optional<DType> dtype;               ///< convert weights to this type; default: unchanged
  int64_t max_shard_bytes = 5'000'000'000;  ///< maximum size of one file
  bool replace = false;                     ///< allow replacing an existing checkpoint (CheckpointFolder)
  Progress progress;                        ///< bytes written; may be empty
  AddFiles add_files;                       ///< called with the folder before it becomes visible
};
/// Atomically writes a folder that Hugging Face transformers loads. The family must represent exactly this
/// architecture; if none does, an Error lists the differences from the nearest one. Returns the family.
std::string write_hf(const std::string& folder, const Checkpoint& checkpoint, const HfWriteOptions& options = {});

/// Converts tensors with Lamina's names, such as gradients, to the names and layouts of transformers' parameters in
/// memory. A parameter is omitted unless all its parts are given.
NamedTensors hf_parameters(const std::string& model_type, const arch::ArchSpec& resolved, const NamedTensors& tensors);

}  // namespace lamina::io
