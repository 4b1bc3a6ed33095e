#pragma once

#include <filesystem>
#include <string>

namespace lamina::lab {

/// The study's folder. It is created if needed, and locked against other processes.
class StudyFolder {
 public:
  /// Throws an Error if the path exists but is not a study, or if another process runs a study in it.
  explicit StudyFolder(const std::string& path);
  ~StudyFolder();
  StudyFolder(const StudyFolder&) = delete;
  StudyFolder& operator=(const StudyFolder&) = delete;

  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace lamina::lab
