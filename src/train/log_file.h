#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace lamina::train {

/// Lines of JSON, each with a "step", in ascending order, on the disk as soon as they are written.
class LogFile {
 public:
  /// Goes on behind what is there, without the lines of steps after `last_step`: they are run again.
  LogFile(const std::string& path, int64_t last_step);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// `line` without its end.
  void write(const std::string& line);

 private:
  std::string path_;
  std::FILE* file_ = nullptr;
};

}  // namespace lamina::train
