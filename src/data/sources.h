#pragma once

#include <cstdint>
#include <functional>
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
};

/// Texts on disk as a stream of documents: a text file is one, and every line of a .jsonl or .ndjson file. Read where
/// they lie, a megabyte at a time; cut at the beginning of a line where there is one, so that tokens reach over no cut.
class Sources {
 public:
  /// Files, and folders, in which .txt, .md, .jsonl and .ndjson files are taken, recursively and sorted. What is not
  /// there, cannot be read as text or holds nothing is an Error.
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
  void add_file(const std::string& path);
  void add_folder(const std::string& path);

  SourceOptions options_;
  std::vector<File> files_;
  int64_t bytes_ = 0;
};

/// Where to cut a text at about `wanted` bytes: before the last line that begins there with something other than white
/// space; without one, between two characters. Never 0 unless the text is empty.
size_t cut_of(std::string_view text, size_t wanted);
/// The first place at or behind `at` where a UTF-8 character begins.
size_t character_start(std::string_view text, size_t at);

}  // namespace lamina::data
