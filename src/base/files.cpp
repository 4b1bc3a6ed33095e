#include "lamina/base/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "lamina/base/error.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kLargestText = uintmax_t{64} << 20;

fs::path without_slash(const std::string& folder) {
  const fs::path path(folder);
  return path.has_filename() ? path : path.parent_path();
}

/// Flushes a folder to disk, which makes renames in it durable. Ignores errors, because some file systems cannot flush
/// folders.
void flush_folder(const fs::path& folder) {
  const int handle = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) return;
  ::fsync(handle);
  ::close(handle);
}

/// Swaps two folders atomically. Returns false if one is missing or the file system does not support it.
bool exchange(const fs::path& a, const fs::path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

/// Whether the process exists and is not a zombie: only then can it still write.
bool is_running(int pid) {
  if (::kill(pid, 0) != 0 && errno == ESRCH) return false;
  std::ifstream file(str("/proc/", pid, "/stat"));
  std::string stat;
  std::getline(file, stat);
  const size_t end_of_name = stat.rfind(") ");  // PID (NAME) STATE …
  return end_of_name == std::string::npos || end_of_name + 2 >= stat.size() || stat[end_of_name + 2] != 'Z';
}

/// Whether `file` is NAME.PID-N.tmp or NAME.PID-N.tmp.old and that process no longer runs.
bool is_leftover(const std::string& file, const std::string& name) {
  int pid = 0;
  int number = 0;
  int end = 0;
  if (!file.starts_with(name + ".")) return false;
  const std::string rest = file.substr(name.size() + 1);
  if (std::sscanf(rest.c_str(), "%9d-%9d.tmp%n", &pid, &number, &end) != 2 || end == 0 || pid <= 0) return false;
  const std::string behind = rest.substr(static_cast<size_t>(end));
  return (behind.empty() || behind == ".old") && !is_running(pid);
}

bool is_empty_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(fs::symlink_status(path, error)) && fs::is_empty(path, error) && !error;
}

}  // namespace

bool path_exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool file_exists(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool folder_exists(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

NewFolder::NewFolder(const std::string& target, bool replace) : target_(without_slash(target)), replace_(replace) {
  LAMINA_CHECK(!target_.empty(), "no output folder was given; name one");
  std::error_code error;
  LAMINA_CHECK(replace || !fs::exists(fs::symlink_status(target_, error)) || is_empty_folder(target_), target,
               ": already exists; choose another name, or replace it with --force");
  LAMINA_CHECK(!fs::exists(target_, error) || fs::is_directory(target_, error), target,
               ": is a file, expected the name of a folder");
  const fs::path parent = target_.parent_path();
  LAMINA_CHECK(parent.empty() || fs::is_directory(parent, error), target, ": its parent folder ", parent.string(),
               " does not exist; create that first");
  clear_leftovers(target_.string());
  for (int attempt = 0; attempt < 1000; ++attempt) {
    temporary_ = target_;
    temporary_ += str(".", ::getpid(), "-", attempt, ".tmp");
    if (fs::create_directory(temporary_, error)) return;
    LAMINA_CHECK(!error, target, ": cannot be created: ", error.message(), "; check the permissions and space");
  }
  throw Error(str(target, ": a thousand leftovers of stopped programs (.tmp) are next to it; remove them"));
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void NewFolder::publish() {
  flush_folder(temporary_);
  if (replace_ && exchange(temporary_, target_)) {
    flush_folder(target_.parent_path());
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
    temporary_.clear();
    return;
  }
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
  flush_folder(target_.parent_path());
  if (!old.empty()) fs::remove_all(old, error);
}

void clear_leftovers(const std::string& target) {
  const fs::path place = without_slash(target);
  const fs::path parent = place.parent_path().empty() ? fs::path(".") : place.parent_path();
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, error)) {
    if (is_leftover(entry.path().filename().string(), place.filename().string())) leftovers.push_back(entry.path());
  }
  for (const fs::path& leftover : leftovers) {
    // Here an interrupted replacement moved the old folder to .old, on a file system that cannot exchange folders.
    // Restore it.
    if (leftover.extension() == ".old" && !fs::exists(place, error)) {
      fs::rename(leftover, place, error);
    } else {
      fs::remove_all(leftover, error);
    }
  }
}

NewFile::NewFile(const std::string& target) : target_(target) {
  // Renaming would replace the device itself, for example /dev/stdout.
  LAMINA_CHECK(!is_pipe(target), target, ": is a pipe or device; expected the name of a regular file");
  for (int attempt = 0; descriptor_ < 0; ++attempt) {
    name_ = str(target, ".", ::getpid(), "-", attempt, ".tmp");
    descriptor_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && (errno != EEXIST || attempt == 1000)) fail("cannot be created");
  }
}

NewFile::~NewFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!name_.empty()) ::unlink(name_.c_str());
}

void NewFile::write(const void* from, size_t bytes) {
  const char* next = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, std::min(bytes, size_t{1} << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot be written");
    next += written;
    bytes -= static_cast<size_t>(written);
  }
}

void NewFile::write_at(uint64_t offset, const void* from, size_t bytes) {
  const char* next = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t written = ::pwrite(descriptor_, next, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot be written");
    next += written;
    offset += static_cast<uint64_t>(written);
    bytes -= static_cast<size_t>(written);
  }
}

void NewFile::publish() {
  if (::fsync(descriptor_) != 0) fail("cannot be flushed to the disk");
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed != 0) fail("cannot be closed");
  if (::rename(name_.c_str(), target_.c_str()) != 0) fail("cannot be renamed into place");
  name_.clear();
  flush_folder(fs::path(target_).parent_path());
}

void NewFile::fail(const char* what) const {
  throw Error(str(target_, ": ", what, " (", std::strerror(errno), "); check the folder, its permissions and space"));
}

bool is_pipe(const std::string& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  return type == fs::file_type::fifo || type == fs::file_type::character || type == fs::file_type::socket;
}

std::string read_pipe(const std::string& path) {
  std::ifstream pipe(path, std::ios::binary);
  LAMINA_CHECK(pipe.is_open(), path, ": cannot be opened; check the permissions");
  std::string text;
  std::vector<char> buffer(size_t{1} << 16);
  while (pipe.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || pipe.gcount() > 0) {
    text.append(buffer.data(), static_cast<size_t>(pipe.gcount()));
    LAMINA_CHECK(text.size() <= kLargestText, path, ": gives more than ", kLargestText,
                 " bytes; is it the right text?");
  }
  return text;
}

std::string read_text(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  LAMINA_CHECK(status.type() != fs::file_type::not_found, path, ": does not exist; check the name");
  LAMINA_CHECK(status.type() != fs::file_type::none, path, ": cannot be read: ", error.message(),
               "; check the name and the permissions");
  LAMINA_CHECK(fs::is_regular_file(status), path, ": is ", fs::is_directory(status) ? "a folder" : "a pipe or device",
               "; expected a regular file");
  const uintmax_t size = fs::file_size(path, error);
  LAMINA_CHECK(!error && size <= kLargestText, path, ": has more than ", kLargestText, " bytes; is it the right file?");
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (size > 0) text << file.rdbuf();
  LAMINA_CHECK(file.is_open() && text.good(), path, ": cannot be read; check the permissions");
  return text.str();
}

void write_text(const std::string& path, const std::string& text) {
  if (is_pipe(path)) {
    std::ofstream pipe(path, std::ios::binary);
    pipe << text << std::flush;
    LAMINA_CHECK(pipe.good(), path, ": cannot be written; check the permissions and that somebody reads the pipe");
    return;
  }
  NewFile file(path);
  file.write(text);
  file.publish();
}

}  // namespace lamina
