#pragma once

#include <functional>
#include <string>

#include "lamina/base/files.h"

namespace lamina::io {

/// Called with the folder's path before the folder becomes visible, to add files.
using AddFiles = std::function<void(const std::string& folder)>;

/// Metadata key, with the value "lamina", that marks Hugging Face weights written by this program.
inline constexpr const char* kWrittenBy = "written_by";

/// Whether `name` is a file that accompanies weights: a tokenizer in any format, a chat template, or generation
/// settings. Conversion copies these files.
bool is_companion_file(const std::string& name);

/// A folder that a checkpoint is written to, atomically (NewFolder). It replaces only checkpoints that this program
/// wrote: folders that hold nothing but marked weights, configuration and companion files.
class CheckpointFolder {
 public:
  /// Throws an Error if check_target() rejects `target`.
  CheckpointFolder(const std::string& target, bool replace);

  std::string path(const std::string& file) const { return folder_.path(file); }
  void publish();

  /// Throws an Error unless `target` does not exist, is an empty folder, or (with `replace`) is a checkpoint of this
  /// program. The message names the first file that is not part of one.
  static void check_target(const std::string& target, bool replace);

 private:
  std::string target_;
  bool replace_;
  NewFolder folder_;
};

}  // namespace lamina::io
