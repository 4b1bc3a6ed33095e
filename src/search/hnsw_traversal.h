#pragma once

#include <algorithm>
#include <vector>

#include "lamina/search/hnsw.h"
#include "lamina/search/vector_kernels.h"

namespace lamina::search {

/// A row and its distance from the query. Nearer rows have smaller distances.
struct Distant {
  float distance;
  uint32_t row;
  bool operator<(const Distant& other) const {
    return distance < other.distance || (distance == other.distance && row < other.row);
  }
};

/// Factors for dot products: the scale of u8 rows, and 1/|x| for cosine. Empty: all 1.
std::vector<float> distance_scales(const VectorsView& vectors, Metric metric);

/// Distances of rows from one query: |q − x|², or −scale · q·x.
struct DistanceFrom {
  const VectorsView& vectors;
  Metric metric;
  const float* scale;  ///< see distance_scales(); null: 1
  const float* query = nullptr;

  void operator()(const uint32_t* rows, int64_t n, float* out) const {
    if (metric == Metric::l2) return gathered_distances(vectors, query, rows, n, out);
    gathered_dots(vectors, query, rows, n, out);
    for (int64_t i = 0; i < n; ++i) out[i] *= scale == nullptr ? -1.0F : -scale[rows[i]];
  }
  float operator()(uint32_t row) const {
    float distance = 0;
    (*this)(&row, 1, &distance);
    return distance;
  }
};

/// Memory of a search, reused by the next one.
class Traversal {
 public:
  explicit Traversal(int64_t rows) : visited_(static_cast<size_t>(rows) / 64 + 1) {}

  /// The nearest row on `level`, found by moving to the nearest linked row until none is nearer.
  uint32_t descend(const HnswView& graph, const DistanceFrom& distance, int level, uint32_t from);
  /// The `beam` nearest rows found on `level`, nearest first. Valid until the next call.
  const std::vector<Distant>& search(const HnswView& graph, const DistanceFrom& distance, int level, uint32_t from,
                                     int64_t beam);

 private:
  bool visit(uint32_t row);
  int64_t collect_unvisited(const uint32_t* list);

  std::vector<uint64_t> visited_;  ///< one bit per row; all clear between searches
  std::vector<uint32_t> seen_;     ///< rows whose bits are set
  std::vector<Distant> beam_;
  std::vector<uint32_t> fresh_;
  std::vector<float> distances_;
};

}  // namespace lamina::search
