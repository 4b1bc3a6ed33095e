#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace lamina {

// What is at a path, following symbolic links. A path that cannot be looked up (name too long, no permission) counts as
// absent, where std::filesystem would throw.
bool path_exists(const std::filesystem::path& path);
bool file_exists(const std::filesystem::path& path);  ///< a regular file
bool folder_exists(const std::filesystem::path& path);

/// A folder that becomes visible whole. It is filled under a temporary name beside `target` and then renamed, or
/// exchanged with the folder that is there, so a crash at any point leaves the old folder or the new one under that
/// name. The destructor removes it unless it was published. The constructor removes what killed processes left beside
/// `target` (clear_leftovers).
class NewFolder {
 public:
  /// An existing `target` is an Error unless it is an empty folder, or `replace`.
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

/// Clears up what processes that were killed while they wrote the folder or file `target` left beside it.
void clear_leftovers(const std::string& target);

/// A file that becomes visible whole: written under another name beside its final one, flushed to the disk and renamed,
/// so that a reader or a crash sees the old file or the new one and nothing between. Removed again unless published.
class NewFile {
 public:
  explicit NewFile(const std::string& target);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* from, size_t bytes);
  void write(const std::string& text) { write(text.data(), text.size()); }
  /// Over bytes already written, for headers that are known last.
  void write_at(uint64_t offset, const void* from, size_t bytes);
  void publish();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string target_;
  std::string name_;
  int descriptor_ = -1;
};

/// Whether `path` can be read once only and has no length: a FIFO, a terminal, /dev/stdin with a pipe behind it.
bool is_pipe(const std::string& path);
/// The whole text of a pipe. More than 64 MiB is an Error.
std::string read_pipe(const std::string& path);
/// The whole text of a small regular file. More than 64 MiB, or a pipe, which could block for ever, is an Error.
std::string read_text(const std::string& path);
/// Through a NewFile.
void write_text(const std::string& path, const std::string& text);

}  // namespace lamina
