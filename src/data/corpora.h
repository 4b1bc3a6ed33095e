#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lamina::data {

struct CorpusFile {
  const char* name;  ///< in the package's folder, and in the output folder
  const char* sha256;
};

/// A corpus that can be downloaded by name. Its files are verified against their hashes.
struct Corpus {
  const char* name;
  const char* about;
  const char* package;  ///< npm package with version; null: the user gives a file or URL
  const char* folder;   ///< folder inside the package
  std::vector<CorpusFile> files;
};
/// All corpora except "synthetic", which is generated.
const std::vector<Corpus>& corpora();

struct GetOptions {
  std::string name;
  std::string folder;
  /// A file or URL to use instead of the package registry: the package's .tgz, or the text itself.
  std::string from;
  int64_t synthetic_bytes = 1 << 20;
  uint64_t seed = 1;
};
/// Writes the corpus into a new folder and returns the paths of its texts: UTF-8, with "\n" line endings. An unknown
/// name, an unreachable registry or a wrong hash is an Error.
std::vector<std::string> get_corpus(const GetOptions& options);

}  // namespace lamina::data
