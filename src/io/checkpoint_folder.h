#pragma once

#include <functional>
#include <string>

#include "lamina/base/files.h"

namespace lamina::io {

/// Called with the folder before it becomes visible, to add files.
using AddFiles = std::function<void(const std::string& folder)>;

/// Metadata key, with the value "lamina", that marks Hugging Face weights written by this program.
inline constexpr const char* kWrittenBy = "written_by";

/// Whether `name` is a file that accompanies the weights: a tokenizer in any format, chat template or generation
/// settings. Conversion copies these.
bool is_companion_file(const std::string& name);

/// A folder to which a checkpoint is written atomically (NewFolder). It replaces only checkpoints that this program
/// wrote: folders that hold only marked weights, configuration and companion files.
class CheckpointFolder {
 public:
  /// Throws Error if check_target rejects `target`.
  CheckpointFolder(const std::string& target, bool replace);

  std::string path(const std::string& file) const { return folder_.path(file); }
  void publish();

  /// Throws Error unless `target` is absent, an empty folder or, with `replace`, a checkpoint of this program. The
  /// message names the first file that is not part of one.
  static void check_target(const std::string& target, bool replace);

 private:
  std::string target_;
  bool replace_;
  NewFolder folder_;
};

}  // namespace lamina::io
