#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/base/dtype.h"
#include "lamina/base/shape.h"

namespace lamina::io {

inline constexpr const char* kManifest = "manifest.json";        ///< name of the manifest in a checkpoint's folder
inline constexpr const char* kModelGroup = "model";              ///< group of the weights
inline constexpr const char* kTrainingGroup = "training";        ///< group of the optimizer state and the averages
inline constexpr const char* kShardedFormat = "lamina-sharded";  ///< value of the key `format`

/// Type and shape of a whole tensor, as a single device would hold it.
struct WholeTensor {
  DType dtype = DType::f32;
  Shape shape;
  bool operator==(const WholeTensor&) const = default;
};

/// A file with pieces of tensors.
struct ShardFile {
  std::string name;     ///< name in the checkpoint's folder
  uint64_t bytes = 0;   ///< size of the file
  uint32_t crc32c = 0;  ///< checksum of all its bytes
  bool operator==(const ShardFile&) const = default;
};

/// Tensors that are stored together, and the files that hold their pieces.
struct ShardGroup {
  std::map<std::string, WholeTensor> tensors;
  std::vector<ShardFile> files;
  bool operator==(const ShardGroup&) const = default;
};

/// The index of a sharded checkpoint. It is written after all other files, so if it exists, they are complete.
struct Manifest {
  int64_t step = 0;                          ///< completed updates
  std::map<std::string, int64_t> layout;     ///< layout of the run that wrote it; information for people only
  std::map<std::string, ShardGroup> groups;  ///< by name: kModelGroup, kTrainingGroup
  bool operator==(const Manifest&) const = default;

  /// The group with this name. Throws an Error if there is none. `path` names the manifest in the message.
  const ShardGroup& group(const std::string& name, const std::string& path) const;
};

/// Parses and validates a manifest. The text is not trusted: file names must stay inside the folder, extents must be
/// plausible, and nothing may be missing; otherwise an Error is thrown. `path` names the manifest in messages.
Manifest parse_manifest(std::string_view text, const std::string& path);
/// Writes a manifest as the JSON that parse_manifest() reads.
std::string manifest_text(const Manifest& manifest);
/// Reads the manifest of a checkpoint's folder.
Manifest read_manifest(const std::string& folder);
/// Whether the folder holds a sharded checkpoint.
bool is_sharded(const std::string& folder);

}  // namespace lamina::io
