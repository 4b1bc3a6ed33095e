#include "lamina/search/flat_search.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>

#include "lamina/base/error.h"
#include "lamina/search/vector_kernels.h"

namespace lamina::search {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
/// From this many queries on, panels of queries are faster than one pass over the rows per query.
constexpr int64_t kPackedQueries = 6;
/// Number of rows that stay in the L2 cache while all queries are compared with them.
constexpr int64_t kBlockRows = 256;
constexpr int64_t kFewestRows = 1024;  // minimum per task

/// The best candidates of one query in a range of rows. It is a superset of the true best k of these rows, because it
/// keeps every score within twice the error bound of the k-th best.
class CandidateBuffer {
 public:
  CandidateBuffer(int64_t k, float margin) : k_(static_cast<size_t>(k)), margin_(margin), limit_(4 * k_ + 64) {}

  float threshold() const { return threshold_; }
  float offer(int64_t row, float score) {
    found_.push_back({score, row});
    if (found_.size() >= limit_) shrink();
    return threshold_;
  }
  /// Adds the candidates of another range of rows.
  void absorb(const CandidateBuffer& other) { found_.insert(found_.end(), other.found_.begin(), other.found_.end()); }
  std::vector<int64_t> rows() {
    shrink();
    std::vector<int64_t> rows;
    for (const Found& found : found_) rows.push_back(found.row);
    return rows;
  }

 private:
  struct Found {
    float score;
    int64_t row;
  };
  void shrink() {
    if (found_.size() <= k_) return;
    const auto last = found_.begin() + static_cast<std::ptrdiff_t>(k_ - 1);
    std::nth_element(found_.begin(), last, found_.end(),
                     [](const Found& a, const Found& b) { return a.score > b.score; });
    threshold_ = last->score - margin_;
    std::erase_if(found_, [&](const Found& found) { return !(found.score > threshold_); });
    limit_ = std::max(limit_, 2 * found_.size());
  }

  size_t k_;
  float margin_;
  size_t limit_;
  float threshold_ = kNever;
  std::vector<Found> found_;
};

/// The candidates of all queries in one range of rows.
class RangeSearch final : public ScoreSink {
 public:
  RangeSearch(int64_t k, std::span<const float> margins) {
    for (const float margin : margins) buffers_.emplace_back(k, margin);
  }

  float offer(int64_t query, int64_t row, float score) override {
    return buffers_[static_cast<size_t>(first_ + query)].offer(row, score);
  }

  /// Compares the rows with each query in a separate pass.
  void scan(const VectorsView& vectors, const ScoreTerms& terms, std::span<const float> queries, int64_t begin,
            int64_t end) {
    float dots[kBlockRows];
    first_ = 0;
    for (int64_t row = begin; row < end; row += kBlockRows) {
      const int64_t n = std::min(kBlockRows, end - row);
      for (size_t q = 0; q < buffers_.size(); ++q) {
        row_dots(vectors, &queries[q * static_cast<size_t>(vectors.dim)], row, n, dots);
        float threshold = buffers_[q].threshold();
        for (int64_t i = 0; i < n; ++i) {
          float score = dots[i];
          if (terms.scale != nullptr) score *= terms.scale[row + i];
          if (terms.bias != nullptr) score += terms.bias[row + i];
          if (score > threshold) threshold = buffers_[q].offer(row + i, score);
        }
      }
    }
  }

  /// Compares the rows with panels of queries: all panels see a block of rows before the next block is read.
  void scan_packed(const VectorsView& vectors, const ScoreTerms& terms, const float* panels, int64_t begin,
                   int64_t end) {
    const auto count = static_cast<int64_t>(buffers_.size());
    const int64_t n_panels = (count + kPanelQueries - 1) / kPanelQueries;
    std::vector<float> thresholds(static_cast<size_t>(n_panels * kPanelQueries),
                                  std::numeric_limits<float>::infinity());
    std::fill(thresholds.begin(), thresholds.begin() + count, kNever);
    std::vector<float> scratch(static_cast<size_t>(8 * vectors.dim));
    for (int64_t row = begin; row < end; row += kBlockRows) {
      for (int64_t panel = 0; panel < n_panels; ++panel) {
        first_ = panel * kPanelQueries;
        packed_scores(vectors, terms, panels + first_ * vectors.dim, row, std::min(kBlockRows, end - row),
                      &thresholds[static_cast<size_t>(first_)], scratch.data(), *this);
      }
    }
  }

  CandidateBuffer& buffer(size_t query) { return buffers_[query]; }

 private:
  std::vector<CandidateBuffer> buffers_;
  int64_t first_ = 0;  ///< first query of the current panel
};

struct FreeAligned {
  void operator()(float* memory) const { std::free(memory); }
};
using AlignedFloats = std::unique_ptr<float, FreeAligned>;

/// Transposes queries [n, dim] into panels [dim, kPanelQueries].
AlignedFloats pack_queries(std::span<const float> queries, int64_t n, int64_t dim) {
  const int64_t n_panels = (n + kPanelQueries - 1) / kPanelQueries;
  const auto values = static_cast<size_t>(n_panels * kPanelQueries * dim);
  AlignedFloats panels(static_cast<float*>(std::aligned_alloc(kPanelAlign, values * sizeof(float))));
  LAMINA_CHECK(panels, "search: no memory for ", n, " queries of ", dim, " dimensions; search fewer at once");
  std::fill_n(panels.get(), values, 0.0F);
  for (int64_t q = 0; q < n; ++q) {
    float* to = panels.get() + q / kPanelQueries * kPanelQueries * dim + q % kPanelQueries;
    for (int64_t i = 0; i < dim; ++i) to[i * kPanelQueries] = queries[static_cast<size_t>(q * dim + i)];
  }
  return panels;
}

double length_of(std::span<const float> query) {
  double sum = 0;
  for (const float value : query) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

}  // namespace

FlatSearch::FlatSearch(const VectorsView& vectors, Metric metric, const std::vector<bool>& skip)
    : vectors_(vectors), metric_(metric) {
  const auto count = static_cast<size_t>(vectors.count);
  LAMINA_CHECK(vectors.squared_norms != nullptr || count == 0, "search: the vectors have no norms");
  LAMINA_CHECK(skip.empty() || skip.size() == count, "search: ", skip.size(), " rows may be skipped, there are ",
               count);
  for (size_t i = 0; i < count; ++i) longest_ = std::max(longest_, std::sqrt(double{vectors.squared_norms[i]}));
  if (vectors.dtype == DType::u8) scale_.assign(vectors.scales, vectors.scales + count);
  if (metric != Metric::inner_product && scale_.empty()) scale_.assign(count, 1.0F);
  if (metric == Metric::l2 || !skip.empty()) bias_.assign(count, 0.0F);
  for (size_t i = 0; i < count; ++i) {
    if (metric == Metric::cosine) {
      const float square = vectors.squared_norms[i];
      scale_[i] = square > 0 ? static_cast<float>(scale_[i] / std::sqrt(double{square})) : 0.0F;
    } else if (metric == Metric::l2) {  // −|q − x|² ranks like 2 q·x − |x|²
      scale_[i] *= 2;
      bias_[i] = -vectors.squared_norms[i];
    }
    if (!skip.empty() && skip[i]) bias_[i] = kNever;
  }
}

void FlatSearch::check(std::span<const float> queries, int64_t k) const {
  const auto dim = static_cast<size_t>(vectors_.dim);
  LAMINA_CHECK(k >= 1, "search: the best ", k, " were asked for; expected at least 1");
  LAMINA_CHECK(dim > 0 && queries.size() % dim == 0, "search: ", queries.size(), " values for queries of ", dim,
               " dimensions; give queries of the model that made the vectors");
  constexpr double kLargest = 1e37;  // sums stay finite in f32
  for (size_t at = 0; at < queries.size(); at += dim) {
    const double length = length_of(queries.subspan(at, dim));
    LAMINA_CHECK(length <= kLargest && length * std::max(longest_, 1.0) <= kLargest && longest_ * longest_ <= kLargest,
                 "search: query ", at / dim, " has the length ", length, ", the longest vector ", longest_,
                 "; expected finite values whose product is below 1e37");
  }
}

std::vector<std::vector<Neighbor>> FlatSearch::search(std::span<const float> queries, int64_t k,
                                                      const Threads& threads) const {
  check(queries, k);
  const auto dim = static_cast<size_t>(vectors_.dim);
  const size_t n = queries.size() / dim;
  std::vector<std::vector<Neighbor>> results(n);
  if (n == 0 || vectors_.count == 0) return results;
  k = std::min(k, vectors_.count);

  // Error bound: |f32 sum − exact| ≤ dim · 2⁻²⁴ · |q||x| (Higham 2002), plus the rounding of scale and bias.
  std::vector<float> margins(n);
  const double unit = (static_cast<double>(dim) + 16) * 0x1p-24;
  for (size_t q = 0; q < n; ++q) {
    const double length = length_of(queries.subspan(q * dim, dim));
    double error = unit * length * (metric_ == Metric::cosine ? 1.0 : longest_);
    if (metric_ == Metric::l2) error = 2 * error + 4 * 0x1p-24 * longest_ * longest_;
    margins[q] = static_cast<float>(2.001 * error);
  }
  const ScoreTerms terms{scale_.empty() ? nullptr : scale_.data(), bias_.empty() ? nullptr : bias_.data()};
  const bool packed = static_cast<int64_t>(n) >= kPackedQueries;
  const AlignedFloats panels = packed ? pack_queries(queries, static_cast<int64_t>(n), vectors_.dim) : nullptr;
  const int64_t wanted = threads.count() > 1 ? 4 * int64_t{threads.count()} : 1;
  const int64_t tasks = std::max<int64_t>(1, std::min(wanted, vectors_.count / kFewestRows));
  std::vector<RangeSearch> ranges;
  ranges.reserve(static_cast<size_t>(tasks));
  for (int64_t i = 0; i < tasks; ++i) ranges.emplace_back(k, margins);
  threads.tasks(tasks, [&](int64_t task) {
    RangeSearch& range = ranges[static_cast<size_t>(task)];
    const int64_t begin = vectors_.count * task / tasks;
    const int64_t end = vectors_.count * (task + 1) / tasks;
    packed ? range.scan_packed(vectors_, terms, panels.get(), begin, end)
           : range.scan(vectors_, terms, queries, begin, end);
  });
  threads.tasks(static_cast<int64_t>(n), [&](int64_t query) {
    const auto q = static_cast<size_t>(query);
    CandidateBuffer& best = ranges[0].buffer(q);
    for (size_t i = 1; i < ranges.size(); ++i) best.absorb(ranges[i].buffer(q));
    for (const int64_t row : best.rows()) {
      results[q].push_back({row, exact_score(vectors_, metric_, queries.subspan(q * dim, dim), row)});
    }
    std::sort(results[q].begin(), results[q].end(), is_better);
    if (results[q].size() > static_cast<size_t>(k)) results[q].resize(static_cast<size_t>(k));
  });
  return results;
}

}  // namespace lamina::search
