#include <algorithm>
#include <filesystem>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/data/corpora.h"
#include "lamina/data/process.h"
#include "lamina/data/sha256.h"
#include "lamina/data/synthetic.h"
#include "lamina/text/utf8.h"

namespace lamina::data {
namespace {

namespace fs = std::filesystem;
constexpr const char* kInstead = "; `lamina data get synthetic` makes a text without a network";

const Corpus& corpus_named(const std::string& name) {
  std::vector<std::string> names{"synthetic"};
  for (const Corpus& corpus : corpora()) {
    if (name == corpus.name) return corpus;
    names.emplace_back(corpus.name);
  }
  const std::string near = nearest_of(name, names);
  throw Error(str("no corpus is called \"", name, "\"", near.empty() ? "" : str("; did you mean ", near, "?").c_str(),
                  "; `lamina data get` lists them"));
}

bool is_address(const std::string& from) { return from.find("://") != std::string::npos; }

std::string first_line(const std::string& output) { return output.substr(0, output.find('\n')); }

std::string last_line(const std::string& output) {
  const size_t end = output.find_last_not_of(" \n");
  if (end == std::string::npos) return "";
  const size_t begin = output.rfind('\n', end);
  return output.substr(begin == std::string::npos ? 0 : begin + 1,
                       end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

void download(const std::string& address, const std::string& path) {
  const ProcessResult result = run_process({"curl", "--fail", "--silent", "--show-error", "--location",
                                            "--connect-timeout", "15", "--max-time", "600", "--output", path, address});
  LAMINA_CHECK(result.status != 127, address,
               ": fetching needs curl (Debian package curl); or fetch the file yourself and ", "name it with --from",
               kInstead);
  LAMINA_CHECK(result.status == 0, address, ": cannot be fetched (", last_line(result.output),
               "); check the address and the network, or name a file with --from", kInstead);
}

/// Downloads the package into `folder`. Returns the path of the downloaded file.
std::string fetch_package(const std::string& package, const fs::path& folder) {
  const ProcessResult npm = run_process({"npm", "pack", "--loglevel=error", "--fetch-retries=1",
                                         "--fetch-timeout=60000", "--pack-destination", folder.string(), package});
  if (npm.status == 0) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".tgz") return entry.path().string();
    }
  }
  LAMINA_CHECK(npm.status != 127, package,
               ": fetching needs npm (Debian package npm); or name the package's .tgz file with --from", kInstead);
  throw Error(str(package, ": the package registry cannot be reached (", first_line(npm.output),
                  "); check the network, or name the package's .tgz file with --from", kInstead));
}

std::string checked_text(const std::string& path, const CorpusFile& file) {
  std::string bytes = read_text(path);
  const std::string hash = sha256_hex(bytes);
  LAMINA_CHECK(hash == file.sha256, path, ": is not the ", file.name, " that is expected: its sha256 is ", hash,
               ", expected ", file.sha256, "; fetch it again from another place");
  return bytes;
}

/// Converts text to UTF-8 with "
/// " line endings. Text that is not valid UTF-8 is treated as Latin-1, whose characters are the first 256 of Unicode.
std::string normalised(const std::string& bytes) {
  const bool latin = text::valid_prefix(bytes) != bytes.size();
  std::string result;
  for (const char c : bytes) {
    if (c == '\r') continue;
    const auto value = static_cast<unsigned char>(c);
    if (latin) {
      text::append_utf8(result, value);
    } else {
      result += c;
    }
  }
  return result;
}

/// Fetches the corpus's original files into `work`. Returns their paths.
std::vector<std::string> fetch_files(const Corpus& corpus, const std::string& from, const fs::path& work) {
  std::string source = from;
  if (is_address(from)) {
    source = (work / "fetched").string();
    download(from, source);
  }
  if (corpus.package == nullptr) return {source};
  if (source.empty()) source = fetch_package(corpus.package, work);
  std::vector<std::string> command{"tar", "-xzf", source, "-C", work.string(), "--"};
  std::vector<std::string> paths;
  for (const CorpusFile& file : corpus.files) {
    command.push_back(str(corpus.folder, "/", file.name));
    paths.push_back((work / command.back()).string());
  }
  const ProcessResult tar = run_process(command);
  LAMINA_CHECK(tar.status == 0, source, ": cannot be unpacked (tar: ", last_line(tar.output),
               "); expected the package ", corpus.package);
  return paths;
}

}  // namespace

std::vector<std::string> get_corpus(const GetOptions& options) {
  const bool synthetic = options.name == "synthetic";
  const Corpus* corpus = synthetic ? nullptr : &corpus_named(options.name);
  LAMINA_CHECK(synthetic || corpus->package != nullptr || !options.from.empty(), options.name,
               ": give a file or address to take it from (--from); it is known by its hash");
  NewFolder folder(options.folder, false);
  std::vector<std::string> names;
  if (synthetic) {
    names.emplace_back("synthetic.txt");
    write_text(folder.path(names[0]), synthetic_play(options.synthetic_bytes, options.seed));
  } else {
    const fs::path work = folder.path("work.tmp");
    fs::create_directory(work);
    const std::vector<std::string> fetched = fetch_files(*corpus, options.from, work);
    for (size_t i = 0; i < fetched.size(); ++i) {
      names.emplace_back(corpus->files[i].name);
      write_text(folder.path(names[i]), normalised(checked_text(fetched[i], corpus->files[i])));
    }
    fs::remove_all(work);
  }
  folder.publish();
  for (std::string& name : names) name = (fs::path(options.folder) / name).string();
  return names;
}

}  // namespace lamina::data
