#include "lamina/io/model_file.h"

#include <filesystem>

#include "lamina/io/hf.h"
#include "lamina/io/llama2c.h"

namespace lamina::io {

Checkpoint read_model(const std::string& path, const Device& device, const ReadOptions& options) {
  namespace fs = std::filesystem;
  LAMINA_CHECK(fs::exists(path), path, ": is not there; give a model's folder or a llama2.c file");
  if (fs::exists(fs::path(path) / "config.json")) return read_hf(path, device, {options.dtype, options.progress});
  const bool native = fs::exists(fs::path(path) / "architecture.json");
  LAMINA_CHECK(native || !fs::is_directory(path), path,
               ": has neither config.json nor architecture.json; give a model's folder or a llama2.c file");
  Checkpoint checkpoint = native ? read_native(path, device) : read_llama2c(path, device);
  return options.dtype ? converted(checkpoint, *options.dtype) : checkpoint;
}

}  // namespace lamina::io
