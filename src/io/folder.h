#pragma once

#include <filesystem>
#include <string>

namespace lamina::io {

/// A folder that becomes visible whole: filled under another name beside its final one, then renamed. Removed again
/// unless it got that far.
class NewFolder {
 public:
  /// An existing `target` is an Error unless `replace`.
  NewFolder(const std::string& target, bool replace);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  std::string path(const std::string& file) const { return (temporary_ / file).string(); }
  void publish();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool replace_;
};

/// A whole small file. Longer than 64 MiB is an Error.
std::string read_text(const std::string& path);
void write_text(const std::string& path, const std::string& text);

}  // namespace lamina::io
