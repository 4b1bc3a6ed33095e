#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace lamina {

// These functions follow symbolic links. A path that cannot be looked up (name too long, no permission) counts as
// absent, where std::filesystem would throw.
bool path_exists(const std::filesystem::path& path);
bool file_exists(const std::filesystem::path& path);  ///< true for a regular file only
bool folder_exists(const std::filesystem::path& path);

/// Creates a folder atomically. It is filled under a temporary name next to `target`, then renamed, or exchanged with
/// an existing folder. A crash at any point leaves either the old or the new folder under the target name. The
/// destructor removes an unpublished folder. The constructor removes leftovers of killed processes (clear_leftovers).
class NewFolder {
 public:
  /// Throws Error if `target` exists, unless it is an empty folder or `replace` is set.
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

/// Removes temporary files and folders that killed writers of `target` left in its folder.
void clear_leftovers(const std::string& target);

/// Writes a file atomically: under a temporary name next to `target`, flushed to disk, then renamed. A reader sees the
/// old or the new file, never a partial one, even after a crash. The destructor removes an unpublished file.
class NewFile {
 public:
  explicit NewFile(const std::string& target);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* from, size_t bytes);
  void write(const std::string& text) { write(text.data(), text.size()); }
  /// Overwrites bytes that were already written, for headers whose content is known last.
  void write_at(uint64_t offset, const void* from, size_t bytes);
  void publish();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string target_;
  std::string name_;
  int descriptor_ = -1;
};

/// Whether `path` has no length and can be read only once: a FIFO, a terminal, or /dev/stdin if it is connected to a
/// pipe.
bool is_pipe(const std::string& path);
/// Reads a pipe to its end. More than 64 MiB is an Error.
std::string read_pipe(const std::string& path);
/// Reads a small regular file. More than 64 MiB is an Error. So is a pipe, because reading it could block forever.
std::string read_text(const std::string& path);
/// Writes a file atomically, through NewFile. A pipe or device, such as /dev/stdout, is written directly.
void write_text(const std::string& path, const std::string& text);

}  // namespace lamina
