#pragma once

#include <cstdint>

#include "lamina/search/vectors.h"

namespace lamina::search {

/// Number of queries in a panel of packed_scores().
inline constexpr int64_t kPanelQueries = 32;
/// Alignment of panels in bytes.
inline constexpr size_t kPanelAlign = 64;

/// Receives scores above a query's threshold, which are rare. Implemented by the caller.
class ScoreSink {
 public:
  virtual ~ScoreSink() = default;
  /// `query` is the index in the panel. Returns the query's new threshold.
  virtual float offer(int64_t query, int64_t row, float score) = 0;
};

/// Converts a dot product to a score that ranks like the metric: score = scale[row] · dot + bias[row].
struct ScoreTerms {
  const float* scale = nullptr;  ///< [count]; null: 1
  const float* bias = nullptr;   ///< [count]; null: 0
};

/// dots[i] = query · row(begin + i) for i < n, without the scale of u8 rows.
void row_dots(const VectorsView& vectors, const float* query, int64_t begin, int64_t n, float* dots);

/// dots[i] = query · row(rows[i]), without the scale of u8 rows.
void gathered_dots(const VectorsView& vectors, const float* query, const uint32_t* rows, int64_t n, float* dots);
/// out[i] = |query − row(rows[i])|², with the scale of u8 rows.
void gathered_distances(const VectorsView& vectors, const float* query, const uint32_t* rows, int64_t n, float* out);

/// Computes scores of rows [begin, begin + n) for the kPanelQueries queries of `panel` [dim, kPanelQueries]; lanes hold
/// queries. Scores above thresholds[query] go to `sink`. `scratch` must hold 8 · dim floats. Unused queries of a panel
/// must have threshold +inf.
void packed_scores(const VectorsView& vectors, const ScoreTerms& terms, const float* panel, int64_t begin, int64_t n,
                   float* thresholds, float* scratch, ScoreSink& sink);

}  // namespace lamina::search
