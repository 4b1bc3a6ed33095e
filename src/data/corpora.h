#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lamina::data {

/// A file of a corpus, with the hash that verifies it.
struct CorpusFile {
  const char* name;  ///< file name in the package's folder, and in the output folder
  const char* sha256;
};

/// A corpus that can be downloaded by name. Its files are verified by their hashes.
struct Corpus {
  const char* name;
  const char* about;
  const char* package;  ///< npm package with version; null: the user gives a file or URL
  const char* folder;   ///< folder in the package
  std::vector<CorpusFile> files;
};
/// All corpora except "synthetic", which is generated.
const std::vector<Corpus>& corpora();

/// Options of get_corpus().
struct GetOptions {
  std::string name;
  std::string folder;
  /// A file or URL to read instead of the package registry: the package's .tgz, or the text itself.
  std::string from;
  int64_t synthetic_bytes = 1 << 20;
  uint64_t seed = 1;
};
/// Writes the corpus into a new folder. Returns the paths of its texts, which are UTF-8 with "
/// " line endings. Throws an Error for an unknown name, an unreachable registry or a wrong hash.
std::vector<std::string> get_corpus(const GetOptions& options);

}  // namespace lamina::data
