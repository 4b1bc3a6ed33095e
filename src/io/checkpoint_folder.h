#pragma once

#include <functional>
#include <string>

#include "lamina/base/files.h"

namespace lamina::io {

/// Called with a folder under way, to add files to it.
using AddFiles = std::function<void(const std::string& folder)>;

/// The metadata key by which weights that we wrote in the Hugging Face layout are known again; its value is "lamina".
inline constexpr const char* kWrittenBy = "written_by";

/// Whether `name` is a file that goes with a model's weights: its tokenizer in any format, chat template or generation
/// settings. Conversion takes these over.
bool is_companion_file(const std::string& name);

/// A folder that a checkpoint is written to, whole or not at all (NewFolder). It replaces only checkpoints that this
/// program wrote: a folder of weights marked as ours, configuration and companion files, and nothing else.
class CheckpointFolder {
 public:
  /// An Error if check_target refuses `target`.
  CheckpointFolder(const std::string& target, bool replace);

  std::string path(const std::string& file) const { return folder_.path(file); }
  void publish();

  /// An Error unless `target` is absent, an empty folder or, with `replace`, a checkpoint that we wrote. The message
  /// names the first file that is not part of one.
  static void check_target(const std::string& target, bool replace);

 private:
  std::string target_;
  bool replace_;
  NewFolder folder_;
};

}  // namespace lamina::io
