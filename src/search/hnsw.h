#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lamina/base/threads.h"
#include "lamina/search/vectors.h"

namespace lamina::search {

/// How a graph is built (hierarchical navigable small world, HNSW).
struct HnswOptions {
  int64_t links = 16;   ///< M: links per row on upper levels, twice as many on level 0; from 2 to 128
  int64_t beam = 200;   ///< efConstruction: rows considered when a row is inserted
  uint64_t seed = 100;  ///< for the random levels of rows
};

/// An HNSW graph in memory that it does not own, for example a mapped file. A list of links is a count followed by
/// `links` (level 0: 2·links) row numbers.
struct HnswView {
  int64_t count = 0;                       ///< number of rows
  int64_t links = 0;                       ///< HnswOptions::links
  int64_t entry = 0;                       ///< row at which searches begin; has the highest level
  std::span<const uint8_t> levels;         ///< [count]: highest level of each row
  std::span<const uint32_t> base;          ///< [count, 1 + 2·links]: level 0
  std::span<const uint32_t> upper;         ///< [Σ levels, 1 + links]: levels 1 and above of each row, row by row
  std::span<const uint32_t> upper_starts;  ///< [count]: index of each row's first list in `upper`

  /// The links of a row on a level: a count, followed by row numbers.
  const uint32_t* list(uint32_t row, int level) const {
    return level == 0 ? &base[row * static_cast<size_t>(2 * links + 1)]
                      : &upper[(upper_starts[row] + static_cast<size_t>(level) - 1) * static_cast<size_t>(links + 1)];
  }
};

/// An HNSW graph that owns its memory.
struct HnswGraph {
  int64_t links = 0;                   ///< see HnswView
  int64_t entry = 0;                   ///< see HnswView
  std::vector<uint8_t> levels;         ///< see HnswView
  std::vector<uint32_t> base;          ///< see HnswView
  std::vector<uint32_t> upper;         ///< see HnswView
  std::vector<uint32_t> upper_starts;  ///< see HnswView

  /// Valid as long as this graph exists.
  HnswView view() const {
    return {static_cast<int64_t>(levels.size()), links, entry, levels, base, upper, upper_starts};
  }
};

/// Builds the graph of Malkov & Yashunin (2016). Rows are inserted in batches that double in size up to 2 % of all
/// rows. Each row of a batch searches the graph as it was before the batch; then all links of the batch are added in
/// the order of the rows (as in ParlayANN). So the graph depends only on the vectors and options, not on the number of
/// threads.
HnswGraph build_hnsw(const VectorsView& vectors, Metric metric, const HnswOptions& options, const Threads& threads);

/// Throws an Error unless every count, link and level of a graph from a file is in range. `name` names the file.
void check_hnsw(const HnswView& graph, const std::string& name);

/// Approximate search in a graph. Results do not depend on the number of threads.
class HnswSearch {
 public:
  /// `vectors` and `graph` must outlive this object. Rows r with skip[r] are never found; an empty `skip` skips none.
  HnswSearch(const VectorsView& vectors, const HnswView& graph, Metric metric, std::vector<bool> skip = {});

  /// The best `k` rows found for each query in `queries` [n, dim]. `beam` (ef) is the number of rows kept during the
  /// search, at least k. A larger beam finds more of the true neighbours and takes longer.
  std::vector<std::vector<Neighbor>> search(std::span<const float> queries, int64_t k, int64_t beam,
                                            const Threads& threads) const;

 private:
  VectorsView vectors_;
  HnswView graph_;
  Metric metric_;
  std::vector<bool> skip_;
  std::vector<float> scale_;
};

}  // namespace lamina::search
