#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lamina::data {

struct CorpusFile {
  const char* name;  ///< in the package's folder, and in ours
  const char* sha256;
};

/// A text that can be asked for by name. Where it comes from is data; what came is held against its hash.
struct Corpus {
  const char* name;
  const char* about;
  const char* package;  ///< of npm, with its version; null: from a file or address that the user gives
  const char* folder;   ///< in the package
  std::vector<CorpusFile> files;
};
/// Without "synthetic", which is made here.
const std::vector<Corpus>& corpora();

struct GetOptions {
  std::string name;
  std::string folder;
  /// A file or address instead of the package registry: the package's .tgz, or the text itself.
  std::string from;
  int64_t synthetic_bytes = 1 << 20;
  uint64_t seed = 1;
};
/// Puts the corpus into a new folder and gives the paths of its texts: UTF-8, lines ending in a newline. An unknown
/// name, a registry out of reach and a hash that differs are Errors.
std::vector<std::string> get_corpus(const GetOptions& options);

}  // namespace lamina::data
