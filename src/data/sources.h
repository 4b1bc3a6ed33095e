#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lamina::data {

/// A part of a document. Documents come in order, and so do the pieces of each document.
struct Piece {
  std::string_view text;
  std::string_view file;       ///< path of its file; "-" for a pipe
  int64_t line = 0;            ///< line number, from 1, in a JSON lines file; otherwise 0
  int64_t document = 0;        ///< index of the document across all sources
  int64_t document_bytes = 0;  ///< size of the whole document
  int64_t at = 0;              ///< offset of the piece in its document
  int64_t source_begin = 0;    ///< offset of the piece in the concatenation of all sources
  int64_t source_end = 0;      ///< offset of the next piece; in JSON lines the range is larger than the text
  bool inside = true;          ///< whether it belongs to a text file, where source bytes are text bytes
  bool last = false;           ///< whether this is the last piece of its document
};

/// How sources are read.
struct SourceOptions {
  std::string text_key = "text";  ///< key of the document's text in a JSON line
  /// Read every source as JSON lines, regardless of its name.
  bool json_lines = false;
  /// The stream that "-" refers to. If null, "-" is an Error.
  std::istream* input = nullptr;
  /// Folder for temporary copies of pipes, which are needed because sources are read more than once. Empty: the
  /// system's folder for temporary files.
  std::string spool;
  /// Called with the number of bytes copied from a pipe so far. May throw to stop.
  std::function<void(int64_t)> on_pipe;
};

/// A sequence of documents: each text file is one, and each line of a .jsonl or .ndjson file is one. Files are
/// memory-mapped and read in pieces of a megabyte. Pieces are cut at the start of a line if possible, so that no token
/// crosses a cut.
class Sources {
 public:
  /// Accepts files, pipes, "-" for `options.input`, and folders. A folder contributes its .txt, .md, .jsonl and .ndjson
  /// files, recursively and in sorted order. A missing, unreadable or empty source is an Error.
  explicit Sources(const std::vector<std::string>& paths, SourceOptions options = {});

  int64_t bytes() const { return bytes_; }
  size_t file_count() const { return files_.size(); }
  /// Calls `take` for every piece, in order.
  void each(const std::function<void(const Piece&)>& take) const;

 private:
  struct File {
    std::string path;
    int64_t bytes = 0;
    bool json_lines = false;
    std::string name = {};  ///< name in messages and Piece::file, if it is not the path
  };
  /// Temporary copy of a pipe. Removed together with the last Sources that uses it.
  struct Spooled;
  void add_file(const std::string& path);
  void add_folder(const std::string& path);
  void add_pipe(const std::string& path);

  SourceOptions options_;
  std::vector<std::shared_ptr<const Spooled>> spooled_;
  std::vector<File> files_;
  int64_t bytes_ = 0;
};

/// Where to cut a text near byte `wanted`: before the last line in reach that does not start with white space or, if
/// there is none, between two characters. Never 0, unless the text is empty.
size_t cut_of(std::string_view text, size_t wanted);
/// The first position at or after `at` where a UTF-8 character begins.
size_t character_start(std::string_view text, size_t at);

}  // namespace lamina::data
