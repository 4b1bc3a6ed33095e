#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lamina/search/chunks.h"
#include "lamina/search/segment.h"

namespace lamina::search {

/// How passages are converted to vectors.
struct VectorSettings {
  std::string model;  ///< path of the model, as given when the index was built
  int64_t dim = 0;
  DType dtype = DType::f16;
  Metric metric = Metric::cosine;
  int64_t graph_from = 20000;  ///< number of passages from which a segment gets a graph; 0: never
  HnswOptions graph;
  std::vector<double> probe;  ///< first values of the vector of kProbeText, which identify the model
};

/// Text whose vector identifies the model.
inline constexpr const char* kProbeText = "The quick brown fox jumps over the lazy dog.";
inline constexpr size_t kProbeValues = 16;

/// The settings that an index was built with.
struct IndexSettings {
  ChunkOptions chunks;
  bool bm25 = true;
  std::optional<VectorSettings> vectors;
};

/// A segment, and which of its documents are deleted.
struct SegmentRecord {
  std::string file;
  std::vector<std::pair<int64_t, int64_t>> deleted;  ///< ascending ranges [begin, end) of documents
};

/// The file index.json. Replacing this file makes an update visible.
struct Manifest {
  IndexSettings settings;
  int64_t next = 1;  ///< number of the next segment file
  std::vector<SegmentRecord> segments;

  static Manifest parse(const std::string& text, const std::string& name);
  static Manifest read(const std::string& folder);
  std::string to_text() const;
};

inline constexpr const char* kManifestFile = "index.json";
std::string segment_file(int64_t number);  ///< "segment-7.lsx"

}  // namespace lamina::search
