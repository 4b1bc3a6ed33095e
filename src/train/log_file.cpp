#include "lamina/train/log_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/base/json.h"

namespace lamina::train {
namespace {

/// Rewrites the file without lines of later steps, and without a truncated last line.
void trim(const std::string& path, int64_t last_step) {
  if (!file_exists(path)) return;
  std::ifstream file(path, std::ios::binary);
  NewFile kept(path);
  for (std::string line; std::getline(file, line);) {
    const auto json = try_parse_json<nlohmann::json>(line).value_or(nlohmann::json());
    const bool whole = json.is_object() && json.contains("step") && json["step"].is_number_integer();
    if (whole && json["step"].get<int64_t>() <= last_step) kept.write(line + "\n");
  }
  kept.publish();
}

}  // namespace

LogFile::LogFile(const std::string& path, int64_t last_step) : path_(path) {
  LAMINA_CHECK(!path_exists(path) || file_exists(path), path, ": is not a regular file; remove it");
  trim(path, last_step);
  file_ = std::fopen(path.c_str(), "ae");
  LAMINA_CHECK(file_ != nullptr, path, ": cannot be written (", std::strerror(errno),
               "); check the folder, its permissions and space");
}

LogFile::~LogFile() { std::fclose(file_); }

void LogFile::write(const std::string& line) {
  const bool written = std::fputs((line + "\n").c_str(), file_) >= 0 && std::fflush(file_) == 0;
  LAMINA_CHECK(written, path_, ": cannot be written (", std::strerror(errno),
               "); free some space or check the permissions, then continue with --resume");
}

}  // namespace lamina::train
