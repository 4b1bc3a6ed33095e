#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>

namespace lamina::testing {

/// A temporary folder for one test; the destructor removes it.
class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(std::filesystem::path(::testing::TempDir()) / ("lamina_" + std::to_string(std::random_device{}()))) {
    std::filesystem::create_directory(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace lamina::testing
