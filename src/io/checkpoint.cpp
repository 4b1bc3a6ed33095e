#include "lamina/io/checkpoint.h"

#include <filesystem>
#include <map>

#include "lamina/arch/json.h"
#include "lamina/arch/layers.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/arch/weights.h"
#include "lamina/base/files.h"
#include "lamina/io/piece_set.h"

namespace lamina::io {
namespace {

void add_slots(const std::vector<arch::Weight>& weights, const std::string& prefix, std::vector<WeightSlot>& slots) {
  for (const arch::Weight& weight : weights) {
    slots.push_back({prefix + weight.name, Shape(std::span<const int64_t>(weight.shape))});
  }
}

/// Whether the forward pass uses the weight before the layers.
bool comes_first(const arch::Weight& weight) {
  return weight.name.starts_with("embedding.") || weight.name.starts_with("position.");
}

/// Contents of a checkpoint folder in Lamina's own format.
struct Stored {
  NamedTensors tensors;
  Metadata metadata;
};

Stored stored_weights(const std::string& folder, const Device& device) {
  Stored stored;
  if (is_sharded(folder)) {
    const PieceSet pieces = PieceSet::open(folder, read_manifest(folder), kModelGroup, device);
    for (const std::string& name : pieces.names()) stored.tensors.push_back({name, pieces.tensor(name)});
  } else {
    const SafetensorsFile file = SafetensorsFile::open(folder + "/model.safetensors", device);
    stored = {file.tensors(), file.metadata()};
  }
  return stored;
}

}  // namespace

std::vector<WeightSlot> weight_slots(const arch::ArchSpec& resolved) {
  std::vector<arch::Weight> before;
  std::vector<arch::Weight> behind;
  for (const arch::Weight& weight : arch::outer_weights(resolved)) {
    (comes_first(weight) ? before : behind).push_back(weight);
  }
  std::vector<WeightSlot> slots;
  add_slots(before, "", slots);
  const auto add_layers = [&](const std::vector<const arch::Block*>& blocks, const std::string& prefix,
                              int64_t d_model) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      add_slots(arch::block_weights(d_model, *blocks[i]), str(prefix, "layers.", i, "."), slots);
    }
  };
  if (resolved.encoder) {
    add_slots(arch::encoder_outer_weights(resolved), "encoder.", slots);
    add_layers(arch::layer_blocks(resolved.encoder->layers), "encoder.", resolved.d_model);
  }
  if (resolved.retrieval) {
    add_slots(arch::neighbour_outer_weights(resolved), "retrieval.", slots);
    add_layers(arch::layer_blocks(resolved.retrieval->layers), "retrieval.", *resolved.retrieval->d_model);
  }
  add_layers(arch::layer_blocks(resolved), "", resolved.d_model);
  add_slots(behind, "", slots);
  return slots;
}

void check_weights(const Checkpoint& checkpoint, const std::string& name) {
  std::map<std::string, const Tensor*> given;
  std::vector<std::string> names;
  for (const auto& [key, tensor] : checkpoint.tensors) {
    LAMINA_CHECK(given.emplace(key, &tensor).second, name, ": two tensors are called '", key, "'; keep one");
    names.push_back(key);
  }
  for (const WeightSlot& slot : weight_slots(checkpoint.spec)) {
    const auto found = given.find(slot.name);
    const std::string nearest = found == given.end() ? nearest_of(slot.name, names) : "";
    LAMINA_CHECK(found != given.end(), name, ": has no tensor '", slot.name, "' ", slot.shape,
                 nearest.empty() ? "" : "; is '" + nearest + "' meant?",
                 "; the architecture and the weights are of different models");
    const Tensor& tensor = *found->second;
    LAMINA_CHECK(tensor.shape() == slot.shape, name, ": tensor '", slot.name, "' is ", tensor.shape(), ", expected ",
                 slot.shape, "; the architecture and the weights are of different models");
    LAMINA_CHECK(is_floating(tensor.dtype()), name, ": tensor '", slot.name, "' holds ", tensor.dtype(),
                 ", expected floating numbers");
    given.erase(found);
  }
  LAMINA_CHECK(given.empty(), name, ": tensor '", given.begin()->first, "' has no place in this architecture (",
               given.size(), " such); the architecture and the weights are of different models");
}

Checkpoint read_native(const std::string& folder, const Device& device) {
  const std::string arch_path = folder + "/architecture.json";
  Checkpoint checkpoint;
  checkpoint.spec = arch::resolve(arch::read_arch(read_text(arch_path), arch_path), arch_path);
  const Stored stored = stored_weights(folder, device);
  std::map<std::string, Tensor> given = by_name(stored.tensors);
  for (const WeightSlot& slot : weight_slots(checkpoint.spec)) {
    const auto found = given.find(slot.name);
    if (found == given.end()) continue;  // check_weights reports the missing tensor
    checkpoint.tensors.push_back({found->first, found->second});
    given.erase(found);
  }
  for (const auto& [name, tensor] : given) checkpoint.tensors.push_back({name, tensor});
  for (const auto& [key, value] : stored.metadata) {
    if (key == "family") checkpoint.family = value;
    if (key.ends_with("_token_id")) checkpoint.tokens[key] = value;
  }
  check_weights(checkpoint, folder);
  return checkpoint;
}

void write_native(const std::string& folder, const Checkpoint& checkpoint, bool replace, const Progress& progress,
                  const AddFiles& add_files) {
  check_weights(checkpoint, folder);
  CheckpointFolder target(folder, replace);
  write_native_files(target.path(""), checkpoint, progress);
  if (add_files) add_files(target.path(""));
  target.publish();
}

void write_native_files(const std::string& folder, const Checkpoint& checkpoint, const Progress& progress) {
  check_weights(checkpoint, folder);
  write_architecture(folder, checkpoint.spec);
  Metadata metadata = checkpoint.tokens;
  metadata["format"] = "lamina";
  if (!checkpoint.family.empty()) metadata["family"] = checkpoint.family;
  write_safetensors((std::filesystem::path(folder) / "model.safetensors").string(), checkpoint.tensors, metadata,
                    progress);
}

void write_architecture(const std::string& folder, const arch::ArchSpec& resolved) {
  write_text((std::filesystem::path(folder) / "architecture.json").string(),
             arch::write_spec(resolved, arch::Defaults::write));
}

Checkpoint converted(const Checkpoint& checkpoint, DType dtype) {
  LAMINA_CHECK(is_floating(dtype), "weights cannot be converted to ", dtype, "; use f32, bf16, f16 or f64");
  Checkpoint result{checkpoint.spec, {}, checkpoint.family, checkpoint.tokens};
  for (const auto& [name, tensor] : checkpoint.tensors) {
    result.tensors.push_back({name, tensor.dtype() == dtype ? tensor : tensor.to(dtype)});
  }
  return result;
}

}  // namespace lamina::io
