#include "lamina/train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "lamina/base/error.h"

namespace lamina::train {
namespace {

namespace fs = std::filesystem;

fs::path locked_file(const std::string& folder) { return fs::path(folder) / "recipe.json"; }

fs::path replaced_place(const std::string& folder) {
  const fs::path path = (fs::path(folder) / ".").lexically_normal().parent_path();  // removes a trailing slash
  return path.parent_path() / ("." + path.filename().string() + ".replaced");
}

/// Whether `path` still refers to the open file. It does not if the run was replaced after the file was opened.
bool is_current(int descriptor, const fs::path& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

}  // namespace

RunLock::RunLock(const std::string& folder) {
  const fs::path file = locked_file(folder);
  while (!held()) {
    descriptor_ = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    LAMINA_CHECK(held(), file.string(), ": cannot be read; check the permissions");
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      ::close(std::exchange(descriptor_, -1));
      throw Error(str(folder, ": another process is training here; wait for it or stop it first"));
    }
    if (!is_current(descriptor_, file)) ::close(std::exchange(descriptor_, -1));
  }
}

RunLock::~RunLock() {
  if (held()) ::close(descriptor_);
}

RunLock::RunLock(RunLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

RunLock& RunLock::operator=(RunLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void set_run_aside(const std::string& folder) {
  std::error_code error;
  fs::rename(folder, replaced_place(folder), error);
  LAMINA_CHECK(!error, folder, ": cannot be moved aside to be replaced: ", error.message());
}

bool restore_replaced_run(const std::string& folder) {
  const fs::path replaced = replaced_place(folder);
  if (!fs::exists(replaced)) return false;
  const RunLock lock = fs::exists(locked_file(folder)) ? RunLock(folder) : RunLock();
  std::error_code error;
  fs::remove_all(folder, error);
  if (!error) fs::rename(replaced, folder, error);
  LAMINA_CHECK(!error, folder, ": the run that was to be replaced lies in ", replaced.string(),
               " and cannot be put back: ", error.message());
  return true;
}

void discard_replaced_run(const std::string& folder) {
  std::error_code ignored;
  fs::remove_all(replaced_place(folder), ignored);
}

}  // namespace lamina::train
