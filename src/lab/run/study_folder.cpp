#include "lamina/lab/run/study_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "lamina/base/error.h"
#include "lamina/base/files.h"

namespace lamina::lab {
namespace {

namespace fs = std::filesystem;

/// Whether the folder contains nothing but what an aborted study leaves before its first run.
bool has_no_runs(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const fs::path name = entry.path().filename();
    if (name != "lock" && name != "data" && name != "measured") return false;
  }
  return !error;
}

}  // namespace

StudyFolder::StudyFolder(const std::string& path) : path_(path) {
  LAMINA_CHECK(!path.empty(), "no folder for the study; name one (--out)");
  LAMINA_CHECK(!path_exists(path_) || path_exists(path_ / "study.json") || has_no_runs(path), path,
               ": exists and is not a study; choose another folder (--out)");
  std::error_code error;
  fs::create_directories(path_, error);
  LAMINA_CHECK(!error, path, ": cannot create the folder: ", error.message(),
               "; check the name, the permissions and the free space");
  const std::string lock = file("lock");
  lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  LAMINA_CHECK(lock_ >= 0, lock, ": cannot be written; check the permissions");
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) return;
  ::close(lock_);
  throw Error(str(path, ": another process runs a study here; wait for it, stop it, or choose another folder (--out)"));
}

StudyFolder::~StudyFolder() { ::close(lock_); }

}  // namespace lamina::lab
