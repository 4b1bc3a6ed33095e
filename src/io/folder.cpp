#include "lamina/io/folder.h"

#include <unistd.h>

#include <fstream>
#include <sstream>

#include "lamina/base/error.h"

namespace lamina::io {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kLargestText = uintmax_t{64} << 20;

fs::path without_slash(const std::string& folder) {
  const fs::path path(folder);
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

NewFolder::NewFolder(const std::string& target, bool replace) : target_(without_slash(target)), replace_(replace) {
  LAMINA_CHECK(!target_.empty(), "no folder to write to was named");
  std::error_code error;
  LAMINA_CHECK(replace || !fs::exists(fs::symlink_status(target_, error)), target,
               ": is there already; choose another name, or say that it may be replaced (--force)");
  LAMINA_CHECK(!fs::exists(target_, error) || fs::is_directory(target_, error), target,
               ": is a file, expected the name of a folder");
  const fs::path parent = target_.parent_path();
  LAMINA_CHECK(parent.empty() || fs::is_directory(parent, error), target, ": there is no folder ", parent.string(),
               " to make it in; make that first");
  for (int attempt = 0; attempt < 1000; ++attempt) {
    temporary_ = target_;
    temporary_ += str(".", ::getpid(), "-", attempt, ".tmp");
    if (fs::create_directory(temporary_, error)) return;
    LAMINA_CHECK(!error, target, ": cannot be made: ", error.message(), "; check the permissions and space");
  }
  throw Error(str(target, ": a thousand unfinished copies lie beside it; remove them"));
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void NewFolder::publish() {
  std::error_code error;
  fs::path old;
  if (replace_ && fs::exists(target_, error)) {
    old = temporary_;
    old += ".old";
    fs::rename(target_, old, error);
    LAMINA_CHECK(!error, target_.string(), ": cannot be replaced: ", error.message());
  }
  fs::rename(temporary_, target_, error);
  if (error) {
    std::error_code ignored;
    if (!old.empty()) fs::rename(old, target_, ignored);
    throw Error(str(target_.string(), ": cannot be renamed into place: ", error.message()));
  }
  temporary_.clear();
  if (!old.empty()) fs::remove_all(old, error);
}

std::string read_text(const std::string& path) {
  std::error_code error;
  LAMINA_CHECK(fs::is_regular_file(path, error), path, ": is not there; check the folder's name");
  const uintmax_t size = fs::file_size(path, error);
  LAMINA_CHECK(!error && size <= kLargestText, path, ": has more than ", kLargestText, " bytes; is it the right file?");
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (size > 0) text << file.rdbuf();
  LAMINA_CHECK(file.is_open() && text.good(), path, ": cannot be read; check the permissions");
  return text.str();
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  LAMINA_CHECK(file.good(), path, ": cannot be written; check the folder, its permissions and space");
}

}  // namespace lamina::io
