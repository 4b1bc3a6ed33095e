#include "lamina/io/model_file.h"

#include <filesystem>
#include <map>

#include "lamina/base/files.h"
#include "lamina/io/hf.h"
#include "lamina/io/hf/sentence_transformers.h"
#include "lamina/io/llama2c.h"

namespace lamina::io {

namespace fs = std::filesystem;

std::string model_place(const std::string& path) {
  for (const char* inside : {"best", "last"}) {
    const fs::path folder = fs::path(path) / inside;
    if (path_exists(fs::path(path) / "recipe.json") && path_exists(folder / "architecture.json"))
      return folder.string();
  }
  if (is_sentence_transformer(path) && !path_exists(fs::path(path) / "config.json") &&
      !path_exists(fs::path(path) / "architecture.json")) {
    return encoder_folder(path);
  }
  return path;
}

namespace {

/// Moves the tensors to the device. Tensors that share memory (a tied head) are moved only once.
void move_to(const Device& device, Checkpoint& checkpoint) {
  std::map<const void*, Tensor> moved;
  for (auto& [name, tensor] : checkpoint.tensors) {
    Tensor& there = moved[tensor.raw()];
    if (!there.defined() || there.shape() != tensor.shape()) there = tensor.to(device);
    tensor = there;
  }
}

}  // namespace

Checkpoint read_model(const std::string& given, const Device& device, const ReadOptions& options) {
  if (device.kind() != DeviceKind::cpu) {
    Checkpoint checkpoint = read_model(given, Device::cpu(), options);
    move_to(device, checkpoint);
    return checkpoint;
  }
  LAMINA_CHECK(path_exists(given), given, ": does not exist; give a model's folder, a run's, or a llama2.c file");
  const std::string path = model_place(given);
  if (path_exists(fs::path(path) / "config.json")) return read_hf(path, device, {options.dtype, options.progress});
  const bool native = path_exists(fs::path(path) / "architecture.json");
  LAMINA_CHECK(native || !folder_exists(path), path,
               ": has neither config.json nor architecture.json; give a model's folder, a run's, or a llama2.c file");
  Checkpoint checkpoint = native ? read_native(path, device) : read_llama2c(path, device);
  return options.dtype ? converted(checkpoint, *options.dtype) : checkpoint;
}

}  // namespace lamina::io
