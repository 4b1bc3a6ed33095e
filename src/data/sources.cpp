#include "lamina/data/sources.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/base/json.h"
#include "lamina/base/mapped_file.h"

namespace lamina::data {
namespace {

namespace fs = std::filesystem;
constexpr size_t kPiece = size_t{1} << 20U;

bool is_json_lines(const std::string& extension) { return extension == ".jsonl" || extension == ".ndjson"; }
bool is_source_file(const std::string& extension) {
  return extension == ".txt" || extension == ".md" || is_json_lines(extension);
}

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// The text of the document in a JSON line.
std::string document_of_line(std::string_view line, const std::string& key, const std::string& where) {
  const auto parsed = try_parse_json<nlohmann::json>(line);
  LAMINA_CHECK(parsed, where, ": is not JSON; expected an object on every line");
  const nlohmann::json& value = *parsed;
  const auto found = value.is_object() ? value.find(key) : value.end();
  LAMINA_CHECK(value.is_object() && found != value.end(), where, ": has no \"", key,
               "\"; expected an object with the text under that key; --text-key names another");
  LAMINA_CHECK(found->is_string(), where, ": \"", key, "\" is ", found->type_name(), ", expected text");
  return found->get<std::string>();
}

/// Divides one document into pieces. `next` has the document's number and source range.
void each_piece(std::string_view text, Piece next, const std::function<void(const Piece&)>& take) {
  next.document_bytes = static_cast<int64_t>(text.size());
  const int64_t source_begin = next.source_begin;
  const int64_t source_end = next.source_end;
  for (size_t at = 0; at < text.size();) {
    const size_t length = cut_of(text.substr(at), kPiece);
    next.text = text.substr(at, length);
    next.at = static_cast<int64_t>(at);
    at += length;
    next.last = at == text.size();
    if (next.inside) next.source_begin = source_begin + next.at;
    next.source_end = next.last ? source_end : source_begin + (next.inside ? static_cast<int64_t>(at) : 0);
    take(next);
  }
}

}  // namespace

size_t character_start(std::string_view text, size_t at) {
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) ++at;
  return at;
}

size_t cut_of(std::string_view text, size_t wanted) {
  if (text.size() <= wanted) return text.size();
  for (size_t at = wanted; at > wanted / 2; --at) {
    if (text[at - 1] == '\n' && !is_space(text[at])) return at;
  }
  return character_start(text, wanted);
}

struct Sources::Spooled {
  explicit Spooled(std::string file) : path(std::move(file)) {}
  ~Spooled() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
  Spooled(const Spooled&) = delete;
  Spooled& operator=(const Spooled&) = delete;
  std::string path;
};

Sources::Sources(const std::vector<std::string>& paths, SourceOptions options) : options_(std::move(options)) {
  LAMINA_CHECK(!paths.empty(), "no source of text was named; give files, folders, or - for standard input");
  for (const std::string& path : paths) {
    std::error_code error;
    if (path == "-" || is_pipe(path)) {
      add_pipe(path);
    } else if (fs::is_directory(path, error)) {
      add_folder(path);
    } else {
      add_file(path);
    }
  }
  LAMINA_CHECK(bytes_ > 0, paths.front(), paths.size() > 1 ? " and the other sources: " : ": ",
               "there is no text in it; expected at least a few lines");
}

void Sources::add_file(const std::string& path) {
  std::error_code error;
  LAMINA_CHECK(fs::is_regular_file(path, error), path, ": does not exist; expected a text file, .jsonl file or folder");
  const std::string extension = fs::path(path).extension().string();
  LAMINA_CHECK(extension != ".gz" && extension != ".zst" && extension != ".xz" && extension != ".zip", path,
               ": is compressed; unpack it, or pipe it in: zcat FILE | lamina data prepare - …");
  LAMINA_CHECK(extension != ".json" || options_.json_lines, path,
               ": is one JSON value; expected a text file, or .jsonl with an object on every line");
  const auto bytes = static_cast<int64_t>(fs::file_size(path, error));
  LAMINA_CHECK(!error, path, ": cannot be examined: ", error.message());
  files_.push_back({path, bytes, options_.json_lines || is_json_lines(extension)});
  bytes_ += bytes;
}

void Sources::add_pipe(const std::string& path) {
  std::ifstream pipe;
  const bool standard = path == "-";
  LAMINA_CHECK(!standard || options_.input != nullptr, "standard input (-) cannot be read here; name files");
  if (!standard) pipe.open(path, std::ios::binary);
  std::istream& input = standard ? *options_.input : pipe;
  const std::string name = standard ? "standard input" : path;
  const fs::path folder = options_.spool.empty() ? fs::temp_directory_path() : fs::path(options_.spool);
  const fs::path copy = folder / str("lamina-pipe-", ::getpid(), "-", files_.size(), ".tmp");
  spooled_.push_back(std::make_shared<const Spooled>(copy.string()));
  NewFile file(copy.string());
  std::vector<char> buffer(size_t{1} << 20U);
  int64_t bytes = 0;
  while (input) {
    input.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    file.write(buffer.data(), static_cast<size_t>(input.gcount()));
    bytes += input.gcount();
    if (options_.on_pipe) options_.on_pipe(bytes);
  }
  LAMINA_CHECK(!input.bad(), name, ": cannot be read to its end");
  LAMINA_CHECK(bytes > 0, name, ": is empty; expected text");
  file.publish();
  files_.push_back({copy.string(), bytes, options_.json_lines, path});
  bytes_ += bytes;
}

void Sources::add_folder(const std::string& path) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->is_regular_file(error) && is_source_file(entry->path().extension().string())) {
      found.push_back(entry->path().string());
    }
  }
  LAMINA_CHECK(!error, path, ": cannot be listed: ", error.message(), "; check the permissions");
  LAMINA_CHECK(!found.empty(), path,
               ": no .txt, .md, .jsonl or .ndjson file in this folder; name the files one by one");
  std::sort(found.begin(), found.end());
  for (const std::string& file : found) add_file(file);
}

void Sources::each(const std::function<void(const Piece&)>& take) const {
  Piece next;
  int64_t base = 0;
  for (const File& file : files_) {
    const MappedFile mapped = map_file(file.path, "a text file");
    const std::string_view text(reinterpret_cast<const char*>(mapped.bytes.data()), mapped.bytes.size());
    LAMINA_CHECK(static_cast<int64_t>(text.size()) == file.bytes, file.path, ": changed while it was read, from ",
                 file.bytes, " to ", text.size(), " bytes; start again when it is complete");
    next.inside = !file.json_lines;
    next.file = file.name.empty() ? file.path : file.name;
    next.line = 0;
    if (!file.json_lines) {
      next.source_begin = base;
      next.source_end = base + file.bytes;
      each_piece(text, next, take);
      if (!text.empty()) ++next.document;
    } else {
      size_t number = 1;
      for (size_t at = 0; at < text.size(); ++number) {
        const size_t end = std::min(text.find('\n', at), text.size());
        const std::string_view line = text.substr(at, end - at);
        next.line = static_cast<int64_t>(number);
        next.source_begin = base + static_cast<int64_t>(at);
        at = std::min(end + 1, text.size());
        next.source_end = base + static_cast<int64_t>(at);
        if (std::all_of(line.begin(), line.end(), is_space)) continue;
        const std::string document = document_of_line(line, options_.text_key, str(file.path, ":", number));
        each_piece(document, next, take);
        if (!document.empty()) ++next.document;
      }
    }
    base += file.bytes;
  }
}

}  // namespace lamina::data
