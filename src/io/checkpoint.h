#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"
#include "lamina/io/checkpoint_folder.h"
#include "lamina/io/safetensors.h"

namespace lamina::io {

/// A model as stored: architecture and weights.
struct Checkpoint {
  arch::ArchSpec spec;   ///< resolved
  NamedTensors tensors;  ///< one per entry of weight_slots(spec), in that order
  std::string family;    ///< model_type of the source files; write_hf uses it as default
  Metadata tokens;       ///< bos_token_id, eos_token_id, pad_token_id of the source files, as JSON
};

/// The name and shape of a weight in checkpoints. Inside a block the name is "layers.<i>." + the weight's name; weights
/// outside the layers have no prefix.
struct WeightSlot {
  std::string name;  ///< name in checkpoints
  Shape shape;       ///< shape of the weight
};
/// All weights of a resolved architecture, in the order of the forward pass.
std::vector<WeightSlot> weight_slots(const arch::ArchSpec& resolved);

/// Throws an Error unless the tensors are exactly the weights of the architecture: none missing, none extra, right
/// shapes, floating types. `name` begins the message.
void check_weights(const Checkpoint& checkpoint, const std::string& name);

/// Reads Lamina's own format: a folder with architecture.json and either model.safetensors or, from a run with several
/// ranks, a manifest and the files of these ranks (manifest.h). Tensors are views of the mapped files; a tensor that
/// ranks divided is a copy.
Checkpoint read_native(const std::string& folder, const Device& device);
/// Writes a checkpoint in Lamina's own format, atomically (CheckpointFolder). `add_files` may add files before it
/// becomes visible.
void write_native(const std::string& folder, const Checkpoint& checkpoint, bool replace = false,
                  const Progress& progress = {}, const AddFiles& add_files = {});

/// Writes only the files of that format into an existing folder, which may hold other files, too.
void write_native_files(const std::string& folder, const Checkpoint& checkpoint, const Progress& progress = {});

/// Writes only architecture.json into an existing folder.
void write_architecture(const std::string& folder, const arch::ArchSpec& resolved);

/// Converts the weights to another floating type. Weights that already have it are shared, not copied.
Checkpoint converted(const Checkpoint& checkpoint, DType dtype);

}  // namespace lamina::io
