#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"
#include "lamina/io/checkpoint_folder.h"
#include "lamina/io/safetensors.h"

namespace lamina::io {

/// A model as stored: its architecture and its weights.
struct Checkpoint {
  arch::ArchSpec spec;   ///< resolved
  NamedTensors tensors;  ///< one per entry of weight_slots(spec), in that order
  std::string family;    ///< model_type of the source files; the default family for write_hf
  Metadata tokens;       ///< bos_token_id, eos_token_id, pad_token_id of the source files, as JSON
};

/// A weight's name in checkpoints: "layers.<i>." + name inside a block; names outside the layers have no prefix.
struct WeightSlot {
  std::string name;  ///< as in checkpoints
  Shape shape;       ///< its extents
};
/// All weights of a resolved architecture, in the order of the forward pass.
std::vector<WeightSlot> weight_slots(const arch::ArchSpec& resolved);

/// Throws Error unless the tensors are exactly the weights of the architecture: none missing, none extra, right shapes,
/// floating types. `name` begins the message.
void check_weights(const Checkpoint& checkpoint, const std::string& name);

/// Reads Lamina's own layout: a folder with architecture.json and model.safetensors, with Lamina's tensor names, or
/// with a manifest and the files of several ranks (manifest.h). Tensors are views of the mapped files; a tensor that
/// ranks divided is a copy.
Checkpoint read_native(const std::string& folder, const Device& device);
/// Writes a CheckpointFolder atomically. `add_files` may add files before it becomes visible.
void write_native(const std::string& folder, const Checkpoint& checkpoint, bool replace = false,
                  const Progress& progress = {}, const AddFiles& add_files = {});

/// Writes only the files of that layout into an existing folder, which may hold other files, too.
void write_native_files(const std::string& folder, const Checkpoint& checkpoint, const Progress& progress = {});

/// Writes only architecture.json into an existing folder.
void write_architecture(const std::string& folder, const arch::ArchSpec& resolved);

/// Converts the weights to another floating type; weights that already have it are shared.
Checkpoint converted(const Checkpoint& checkpoint, DType dtype);

}  // namespace lamina::io
