#include "lamina/search/hnsw_traversal.h"

#include <cmath>

namespace lamina::search {
namespace {

/// Marks rows in the beam whose links have been followed. Row numbers are below 2³¹, so the top bit is free.
constexpr uint32_t kExpanded = 1U << 31U;
constexpr uint32_t kRow = kExpanded - 1;

}  // namespace

std::vector<float> distance_scales(const VectorsView& vectors, Metric metric) {
  std::vector<float> scales;
  if (metric == Metric::l2) return scales;
  const auto count = static_cast<size_t>(vectors.count);
  if (vectors.dtype == DType::u8) scales.assign(vectors.scales, vectors.scales + count);
  if (metric == Metric::inner_product) return scales;
  if (scales.empty()) scales.assign(count, 1.0F);
  for (size_t i = 0; i < count; ++i) {
    const float square = vectors.squared_norms[i];
    scales[i] = square > 0 ? scales[i] / std::sqrt(square) : 0.0F;
  }
  return scales;
}

bool Traversal::visit(uint32_t row) {
  uint64_t& word = visited_[row / 64];
  const uint64_t bit = uint64_t{1} << (row % 64);
  if ((word & bit) != 0) return false;
  word |= bit;
  seen_.push_back(row);
  return true;
}

int64_t Traversal::collect_unvisited(const uint32_t* list) {
  fresh_.clear();
  for (uint32_t i = 1; i <= list[0]; ++i) {
    if (visit(list[i])) fresh_.push_back(list[i]);
  }
  distances_.resize(std::max(distances_.size(), fresh_.size()));
  return static_cast<int64_t>(fresh_.size());
}

uint32_t Traversal::descend(const HnswView& graph, const DistanceFrom& distance, int level, uint32_t from) {
  Distant nearest{distance(from), from};
  for (bool moved = true; moved;) {
    moved = false;
    const uint32_t* list = graph.list(nearest.row, level);
    distances_.resize(std::max<size_t>(distances_.size(), list[0]));
    distance(list + 1, list[0], distances_.data());
    for (uint32_t i = 0; i < list[0]; ++i) {
      const Distant other{distances_[i], list[i + 1]};
      if (!(other < nearest)) continue;
      nearest = other;
      moved = true;
    }
  }
  return nearest.row;
}

const std::vector<Distant>& Traversal::search(const HnswView& graph, const DistanceFrom& distance, int level,
                                              uint32_t from, int64_t beam) {
  const auto most = static_cast<size_t>(beam);
  beam_.clear();
  beam_.reserve(most + 1);
  visit(from);
  beam_.push_back({distance(from), from});
  // The beam is sorted. Rows before `next` have been expanded.
  for (size_t next = 0; next < beam_.size();) {
    Distant& current = beam_[next];
    if ((current.row & kExpanded) != 0) {
      ++next;
      continue;
    }
    const uint32_t* list = graph.list(current.row, level);
    current.row |= kExpanded;
    const int64_t n = collect_unvisited(list);
    distance(fresh_.data(), n, distances_.data());
    for (int64_t i = 0; i < n; ++i) {
      const Distant found{distances_[static_cast<size_t>(i)], fresh_[static_cast<size_t>(i)]};
      if (beam_.size() == most && !(found.distance < beam_.back().distance)) continue;
      const auto nearer = [](const Distant& a, const Distant& b) {
        return a.distance < b.distance || (a.distance == b.distance && (a.row & kRow) < (b.row & kRow));
      };
      const auto place = std::upper_bound(beam_.begin(), beam_.end(), found, nearer);
      next = std::min(next, static_cast<size_t>(place - beam_.begin()));
      if (beam_.size() == most) beam_.pop_back();
      beam_.insert(place, found);
    }
  }
  for (const uint32_t row : seen_) visited_[row / 64] = 0;
  seen_.clear();
  for (Distant& found : beam_) found.row &= kRow;
  return beam_;
}

}  // namespace lamina::search
