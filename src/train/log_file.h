#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace lamina::train {

/// A JSON lines file. Each line has a "step", in ascending order. Every line is flushed to disk when it is written.
class LogFile {
 public:
  /// Appends to an existing file. First removes lines of steps after `last_step`, because these steps will run again.
  LogFile(const std::string& path, int64_t last_step);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// `line` has no trailing newline.
  void write(const std::string& line);

 private:
  std::string path_;
  std::FILE* file_ = nullptr;
};

}  // namespace lamina::train
