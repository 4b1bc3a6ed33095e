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

/// The rankings that a search uses.
enum class RankBy : uint8_t { bm25, dense, both };

/// One query.
struct Query {
  std::string text;           ///< text whose words BM25 uses
  std::vector<float> vector;  ///< vector of the text, for RankBy::dense and both
};

/// Options of a search.
struct SearchOptions {
  int64_t top = 5;           ///< maximum number of results
  RankBy by = RankBy::bm25;  ///< which rankings
  int64_t candidates = 100;  ///< number of candidates from each ranking before fusion; at least `top` are used
  int64_t beam = 100;        ///< beam of searches in graphs
  bool exact = false;        ///< compare with every vector even if there is a graph
};

/// A passage that a search found.
struct Hit {
  int64_t row = 0;         ///< its number in the index; see Index::text
  double score = 0;        ///< BM25 score, or score of the metric; for both: Σ 1 / (60 + rank)
  int64_t bm25_rank = 0;   ///< rank from 1; 0: not among the candidates
  int64_t dense_rank = 0;  ///< the same for the vector ranking
};

/// Reciprocal rank fusion (Cormack et al. 2009): orders rows by Σ 1 / (60 + rank) over both lists, ties by row.
std::vector<Hit> fuse_ranks(const std::vector<Neighbor>& bm25, const std::vector<Neighbor>& dense, int64_t top);

/// An index folder, opened for reading. It stays valid while other processes update the folder, and shows the state at
/// the time of opening.
class Index {
 public:
  /// Maps and checks every file. Throws an Error if one is missing, damaged or inconsistent.
  static Index open(const std::string& folder);

  const IndexSettings& settings() const { return manifest_.settings; }  ///< settings that the index was built with
  int64_t passage_count() const { return passages_; }                   ///< without deleted ones
  int64_t document_count() const { return documents_; }                 ///< without deleted ones
  int64_t deleted_count() const { return deleted_; }                    ///< deleted passages that still take space
  size_t bytes() const;                                                 ///< size of all segments
  const std::vector<Segment>& segments() const { return segments_; }    ///< in order

  /// The best passages, best first. Throws an Error if the index lacks the data for the ranking.
  std::vector<Hit> search(const Query& query, const SearchOptions& options, const Threads& threads) const;

  std::string_view text(int64_t row) const;      ///< text of a passage
  std::string_view document(int64_t row) const;  ///< name of the passage's document
  uint64_t begin(int64_t row) const;             ///< offset of the passage in its document, in bytes
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
  std::vector<int64_t> first_rows_;         ///< first row of each segment, then the number of all rows
  std::vector<std::vector<bool>> skipped_;  ///< per segment: its deleted passages; empty: none
  std::unique_ptr<Bm25Search> bm25_;
  std::vector<FlatSearch> flat_;
  std::vector<std::optional<HnswSearch>> graphs_;
  int64_t passages_ = 0;
  int64_t documents_ = 0;
  int64_t deleted_ = 0;
};

}  // namespace lamina::search
