#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lamina/base/threads.h"
#include "lamina/search/flat_search.h"
#include "lamina/search/manifest.h"

namespace lamina::search {

/// Which rankings a search uses.
enum class RankBy : uint8_t { bm25, dense, both };

/// One query.
struct Query {
  std::string text;           ///< its words are for BM25
  std::vector<float> vector;  ///< of the text, for RankBy::dense and both
};

/// How many passages are found, and how.
struct SearchOptions {
  int64_t top = 5;           ///< most results
  RankBy by = RankBy::bm25;  ///< which rankings
  int64_t candidates = 100;  ///< of each ranking, before fusion; at least `top` are taken
  int64_t beam = 100;        ///< of searches in graphs
  bool exact = false;        ///< compare with every vector although there is a graph
};

/// A passage that was found.
struct Hit {
  int64_t row = 0;         ///< its number in the index, for Index::text
  double score = 0;        ///< of BM25, of the metric, or Σ 1 / (60 + rank) for both
  int64_t bm25_rank = 0;   ///< from 1; 0: not among the candidates
  int64_t dense_rank = 0;  ///< the same for vectors
};

/// Reciprocal rank fusion (Cormack et al. 2009): orders rows by Σ 1 / (60 + rank) over the lists, ties by row.
std::vector<Hit> fuse_ranks(const std::vector<Neighbor>& bm25, const std::vector<Neighbor>& dense, int64_t top);

/// An index folder, opened for reading. It stays valid while others update the folder, and shows the state of the time
/// when it was opened.
class Index {
 public:
  /// Maps and checks every file. Throws Error if one is missing, damaged or inconsistent.
  static Index open(const std::string& folder);

  const IndexSettings& settings() const { return manifest_.settings; }  ///< of the index
  int64_t passage_count() const { return passages_; }                   ///< without deleted ones
  int64_t document_count() const { return documents_; }                 ///< without deleted ones
  int64_t deleted_count() const { return deleted_; }                    ///< deleted passages that still take space
  size_t bytes() const;                                                 ///< of all segments
  const std::vector<Segment>& segments() const { return segments_; }    ///< in order

  /// The best passages, best first. Throws Error if the index lacks what the ranking needs.
  std::vector<Hit> search(const Query& query, const SearchOptions& options, const Threads& threads) const;

  std::string_view text(int64_t row) const;      ///< of a passage
  std::string_view document(int64_t row) const;  ///< name of its document
  uint64_t begin(int64_t row) const;             ///< its first byte in the document
  /// Calls take(name, row) for every passage that is not deleted, in order.
  void each(const std::function<void(std::string_view name, int64_t row)>& take) const;

 private:
  struct Place {
    const Segment* segment;
    int64_t chunk;
  };
  Place place(int64_t row) const;
  std::vector<Neighbor> dense(const std::vector<float>& query, int64_t k, const SearchOptions& options,
                              const Threads& threads) const;

  Manifest manifest_;
  std::vector<Segment> segments_;
  std::vector<int64_t> first_rows_;         ///< of each segment, then the number of all rows
  std::vector<std::vector<bool>> skipped_;  ///< deleted passages of each segment; empty: none
  std::unique_ptr<Bm25Search> bm25_;
  std::vector<FlatSearch> flat_;
  std::vector<std::optional<HnswSearch>> graphs_;
  int64_t passages_ = 0;
  int64_t documents_ = 0;
  int64_t deleted_ = 0;
};

}  // namespace lamina::search
