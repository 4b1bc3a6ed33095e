#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"
#include "lamina/io/checkpoint_folder.h"
#include "lamina/io/safetensors.h"

namespace lamina::io {

/// A model at rest: what it is, and its weights.
struct Checkpoint {
  arch::ArchSpec spec;   ///< resolved
  NamedTensors tensors;  ///< one for each of weight_slots(spec), in that order
  std::string family;    ///< model_type of the files it was read from, preferred when it is written to such again
  Metadata tokens;       ///< bos_token_id, eos_token_id, pad_token_id as that file had them, in JSON
};

/// A weight as checkpoints name it: "layers.<i>." before the name inside a block, outer names as they are.
struct WeightSlot {
  std::string name;
  Shape shape;
};
/// Every weight of a resolved architecture, in the order of the forward pass.
std::vector<WeightSlot> weight_slots(const arch::ArchSpec& resolved);

/// Throws where the checkpoint's tensors are not exactly the weights of its architecture: one missing, one too many,
/// one of another shape or of a type that is no floating one. `name` begins the message.
void check_weights(const Checkpoint& checkpoint, const std::string& name);

/// Our own layout: a folder with architecture.json and model.safetensors, tensors under our names. Tensors are views of
/// the mapped file.
Checkpoint read_native(const std::string& folder, const Device& device);
/// Writes a CheckpointFolder: whole or not at all. `add_files` may add files before it appears.
void write_native(const std::string& folder, const Checkpoint& checkpoint, bool replace = false,
                  const Progress& progress = {}, const AddFiles& add_files = {});

/// The files of that layout alone, into a folder that is there: for one that holds more than a model.
void write_native_files(const std::string& folder, const Checkpoint& checkpoint, const Progress& progress = {});

/// The same weights in another floating type; those that have it already are shared.
Checkpoint converted(const Checkpoint& checkpoint, DType dtype);

}  // namespace lamina::io
