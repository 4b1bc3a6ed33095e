#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lamina::data {

/// A part of a document. Documents come in order, and their parts one behind another.
struct Piece {
  std::string_view text;
  int64_t document = 0;        ///< counted through all sources
  int64_t document_bytes = 0;  ///< of the whole document
  int64_t at = 0;              ///< where the piece begins in it
  int64_t source_begin = 0;    ///< where the piece begins in all sources together
  int64_t source_end = 0;      ///< and where the next one does: more than the text's length in files of JSON lines
  bool inside = true;          ///< a text file's piece: bytes of source and text are the same
  bool last = false;           ///< the document ends with it
};

struct SourceOptions {
  std::string text_key = "text";  ///< in a line of JSON: where the document is
  /// Every source is JSON lines, whatever it is called.
  bool json_lines = false;
  /// What "-" reads; without it "-" is an Error.
  std::istream* input = nullptr;
  /// Folder for temporary copies of pipes, which are read more than once; empty: the system's temporary folder.
  std::string spool;
  /// Called with the bytes copied so far of a pipe. May throw to end the reading.
  std::function<void(int64_t)> on_pipe;
};

/// Texts as a sequence of documents: a text file is one, and every line of a .jsonl or .ndjson file. Files are mapped
/// and read a megabyte at a time; pieces are cut at the beginning of a line if there is one, so no token crosses a cut.
class Sources {
 public:
  /// Files, pipes, "-" for `options.input`, and folders, in which .txt, .md, .jsonl and .ndjson files are taken,
  /// recursively and sorted. What does not exist, cannot be read as text or is empty is an Error.
  explicit Sources(const std::vector<std::string>& paths, SourceOptions options = {});

  int64_t bytes() const { return bytes_; }
  size_t file_count() const { return files_.size(); }
  /// Calls `take` for every piece.
  void each(const std::function<void(const Piece&)>& take) const;

 private:
  struct File {
    std::string path;
    int64_t bytes = 0;
    bool json_lines = false;
  };
  /// The temporary copy of a pipe, removed with the last Sources that uses it.
  struct Spooled;
  void add_file(const std::string& path);
  void add_folder(const std::string& path);
  void add_pipe(const std::string& path);

  SourceOptions options_;
  std::vector<std::shared_ptr<const Spooled>> spooled_;
  std::vector<File> files_;
  int64_t bytes_ = 0;
};

/// Where to cut a text at about `wanted` bytes: before the last line that begins there with something other than white
/// space; without one, between two characters. Never 0 unless the text is empty.
size_t cut_of(std::string_view text, size_t wanted);
/// The first place at or behind `at` where a UTF-8 character begins.
size_t character_start(std::string_view text, size_t at);

}  // namespace lamina::data
