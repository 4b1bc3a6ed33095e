#include "lamina/search/hnsw.h"

#include <cmath>

#include "lamina/base/error.h"
#include "lamina/search/hnsw_traversal.h"

namespace lamina::search {

HnswSearch::HnswSearch(const VectorsView& vectors, const HnswView& graph, Metric metric, std::vector<bool> skip)
    : vectors_(vectors),
      graph_(graph),
      metric_(metric),
      skip_(std::move(skip)),
      scale_(distance_scales(vectors, metric)) {
  LAMINA_CHECK(vectors.count == graph.count, "hnsw: ", vectors.count, " vectors, but a graph of ", graph.count,
               " rows");
  LAMINA_CHECK(skip_.empty() || static_cast<int64_t>(skip_.size()) == graph.count, "hnsw: ", skip_.size(),
               " rows may be skipped, there are ", graph.count);
}

std::vector<std::vector<Neighbor>> HnswSearch::search(std::span<const float> queries, int64_t k, int64_t beam,
                                                      const Threads& threads) const {
  const auto dim = static_cast<size_t>(vectors_.dim);
  LAMINA_CHECK(k >= 1 && beam >= 1, "hnsw: the best ", k, " with a beam of ", beam, "; expected at least 1");
  LAMINA_CHECK(dim > 0 && queries.size() % dim == 0, "hnsw: ", queries.size(), " values for queries of ", dim,
               " dimensions; give queries of the model that made the vectors");
  const size_t n = queries.size() / dim;
  for (const float value : queries) {
    LAMINA_CHECK(std::isfinite(value), "hnsw: a query holds ", value, "; expected finite numbers. Check the model");
  }
  std::vector<std::vector<Neighbor>> results(n);
  if (graph_.count == 0) return results;
  constexpr int64_t kQueriesPerTask = 8;
  threads.ranges(static_cast<int64_t>(n), kQueriesPerTask, [&](int64_t begin, int64_t end) {
    Traversal traversal(graph_.count);
    for (auto q = static_cast<size_t>(begin); q < static_cast<size_t>(end); ++q) {
      const std::span<const float> query = queries.subspan(q * dim, dim);
      const DistanceFrom distance{vectors_, metric_, scale_.empty() ? nullptr : scale_.data(), query.data()};
      auto nearest = static_cast<uint32_t>(graph_.entry);
      for (int level = graph_.levels[nearest]; level > 0; --level) {
        nearest = traversal.descend(graph_, distance, level, nearest);
      }
      // Skipped rows occupy places in the beam. If too few other rows remain, search again with a wider beam.
      for (int64_t width = std::min(std::max(beam, k), graph_.count);; width *= 2) {
        results[q].clear();
        for (const Distant& found : traversal.search(graph_, distance, 0, nearest, width)) {
          if (!skip_.empty() && skip_[found.row]) continue;
          results[q].push_back({found.row, exact_score(vectors_, metric_, query, found.row)});
          if (static_cast<int64_t>(results[q].size()) == k) break;
        }
        if (skip_.empty() || static_cast<int64_t>(results[q].size()) == k || width >= graph_.count) break;
      }
      std::sort(results[q].begin(), results[q].end(), is_better);
    }
  });
  return results;
}

}  // namespace lamina::search
