#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/base/dtype.h"
#include "lamina/base/shape.h"

namespace lamina::io {

inline constexpr const char* kManifest = "manifest.json";        ///< its name in a checkpoint's folder
inline constexpr const char* kModelGroup = "model";              ///< the weights
inline constexpr const char* kTrainingGroup = "training";        ///< optimizer state and averages
inline constexpr const char* kShardedFormat = "lamina-sharded";  ///< value of the key `format`

/// A tensor as one device would hold it.
struct WholeTensor {
  DType dtype = DType::f32;
  Shape shape;
  bool operator==(const WholeTensor&) const = default;
};

/// A file with pieces of tensors.
struct ShardFile {
  std::string name;     ///< in the checkpoint's folder
  uint64_t bytes = 0;   ///< its size
  uint32_t crc32c = 0;  ///< checksum of all its bytes
  bool operator==(const ShardFile&) const = default;
};

/// Tensors that are stored together, and the files that hold their pieces.
struct ShardGroup {
  std::map<std::string, WholeTensor> tensors;
  std::vector<ShardFile> files;
  bool operator==(const ShardGroup&) const = default;
};

/// The index of a sharded checkpoint. It is written after every other file, so it exists only if they are complete.
struct Manifest {
  int64_t step = 0;                          ///< completed updates
  std::map<std::string, int64_t> layout;     ///< of the run that wrote it; for people, readers do not need it
  std::map<std::string, ShardGroup> groups;  ///< by name: kModelGroup, kTrainingGroup
  bool operator==(const Manifest&) const = default;

  /// Throws Error if there is no such group. `path` names the manifest in the message.
  const ShardGroup& group(const std::string& name, const std::string& path) const;
};

/// Parses and validates a manifest. Untrusted text gives an Error: file names stay inside the folder, extents are
/// plausible, nothing is missing. `path` names the manifest in messages.
Manifest parse_manifest(std::string_view text, const std::string& path);
/// The JSON that parse_manifest reads.
std::string manifest_text(const Manifest& manifest);
/// Reads the manifest of a checkpoint's folder.
Manifest read_manifest(const std::string& folder);
/// Whether the folder holds a sharded checkpoint.
bool is_sharded(const std::string& folder);

}  // namespace lamina::io
