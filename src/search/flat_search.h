#pragma once

#include <span>
#include <vector>

#include "lamina/base/threads.h"
#include "lamina/search/vectors.h"

namespace lamina::search {

/// Exact search: compares each query with every row. Candidates are found in f32 with a bound on the rounding error,
/// then ranked by exact_score() in f64, ties by row. So the result does not depend on the number of threads, the
/// batching of queries, or the instruction set.
class FlatSearch {
 public:
  /// `vectors` must outlive this object. Rows r with skip[r] are never found; an empty `skip` skips none.
  FlatSearch(const VectorsView& vectors, Metric metric, const std::vector<bool>& skip = {});

  /// The best `k` rows for each query in `queries` [n, dim], best first; fewer if there are fewer rows. Throws an Error
  /// if a query is not finite, or if values are too large for f32 products.
  std::vector<std::vector<Neighbor>> search(std::span<const float> queries, int64_t k, const Threads& threads) const;

 private:
  void check(std::span<const float> queries, int64_t k) const;

  VectorsView vectors_;
  Metric metric_;
  double longest_ = 0;        ///< largest |x|
  std::vector<float> scale_;  ///< see ScoreTerms; empty: 1
  std::vector<float> bias_;   ///< see ScoreTerms; empty: 0
};

}  // namespace lamina::search
