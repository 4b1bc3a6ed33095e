#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "lamina/base/error.h"
#include "lamina/search/flat_search.h"
#include "lamina/search/hnsw.h"

namespace lamina::search {
namespace {

std::vector<float> normal_values(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// Vectors around a few centres, so that near neighbours exist.
std::vector<float> clustered_values(int64_t rows, int64_t dim, uint32_t seed) {
  const std::vector<float> centres = normal_values(static_cast<size_t>(20 * dim), 99);
  std::vector<float> values = normal_values(static_cast<size_t>(rows * dim), seed);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < dim; ++i) {
      values[static_cast<size_t>(row * dim + i)] += centres[static_cast<size_t>((row * 7 + seed) % 20 * dim + i)];
    }
  }
  return values;
}

/// The oracle: values as stored, kept apart from the library's readers.
struct PlainRows {
  std::vector<std::vector<double>> rows;
  PlainRows(const std::vector<float>& values, int64_t dim, DType dtype) {
    for (size_t at = 0; at < values.size(); at += static_cast<size_t>(dim)) {
      std::vector<double> row(values.begin() + static_cast<std::ptrdiff_t>(at),
                              values.begin() + static_cast<std::ptrdiff_t>(at) + dim);
      if (dtype == DType::f16) {
        for (double& value : row) value = static_cast<double>(static_cast<float>(f16(static_cast<float>(value))));
      } else if (dtype == DType::u8) {
        double largest = 0;
        for (const double value : row) largest = std::max(largest, std::abs(value));
        const auto scale = static_cast<float>(static_cast<float>(largest) / 127);
        const float inverse = scale > 0 ? 1 / scale : 0;
        for (double& value : row) value = static_cast<double>(scale) * std::lround(static_cast<float>(value) * inverse);
      }
      rows.push_back(row);
    }
  }
};

std::vector<Neighbor> brute_force(const PlainRows& base, Metric metric, const float* query, size_t k,
                                  const std::vector<bool>& skip = {}) {
  std::vector<Neighbor> all;
  for (size_t r = 0; r < base.rows.size(); ++r) {
    if (!skip.empty() && skip[r]) continue;
    double dot = 0;
    double qq = 0;
    double xx = 0;
    double distance = 0;
    for (size_t i = 0; i < base.rows[r].size(); ++i) {
      const double q = query[i];
      const double x = base.rows[r][i];
      dot += q * x;
      qq += q * q;
      xx += x * x;
      distance += (q - x) * (q - x);
    }
    const double cosine = qq > 0 && xx > 0 ? dot / (std::sqrt(xx) * std::sqrt(qq)) : 0;
    all.push_back({static_cast<int64_t>(r), metric == Metric::l2       ? -distance
                                            : metric == Metric::cosine ? cosine
                                                                       : dot});
  }
  std::stable_sort(all.begin(), all.end(), [](const Neighbor& a, const Neighbor& b) { return a.score > b.score; });
  if (all.size() > k) all.resize(k);
  return all;
}

TEST(FlatSearch, EqualsBruteForceInF64) {
  for (const DType dtype : {DType::f32, DType::f16, DType::u8}) {
    for (const Metric metric : {Metric::inner_product, Metric::cosine, Metric::l2}) {
      for (const auto& [rows, dim] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {9, 3}, {500, 37}, {3000, 64}}) {
        std::vector<float> values = clustered_values(rows, dim, 1);
        if (rows > 8) std::copy_n(values.begin(), dim, values.begin() + 5 * dim);  // a duplicate: a tie
        if (rows > 8) std::fill_n(values.begin() + 6 * dim, dim, 0.0F);            // no direction
        const std::vector<float> queries = clustered_values(40, dim, 2);
        Vectors vectors(dtype, dim);
        vectors.append(values);
        const PlainRows oracle(values, dim, dtype);
        const FlatSearch flat(vectors.view(), metric);
        for (const int64_t batch : {1, 5, 40}) {  // below and above the size at which queries are packed
          const int64_t best = rows <= 500 && batch < 40 ? rows : 10;  // every row for small sets, else the ten best
          const auto found = flat.search({queries.data(), static_cast<size_t>(batch * dim)}, best, Threads(2));
          ASSERT_EQ(found.size(), static_cast<size_t>(batch));
          for (int64_t q = 0; q < batch; ++q) {
            const auto expected =
                brute_force(oracle, metric, &queries[static_cast<size_t>(q * dim)], static_cast<size_t>(best));
            const auto& result = found[static_cast<size_t>(q)];
            ASSERT_EQ(result.size(), expected.size());
            for (size_t i = 0; i < expected.size(); ++i) {
              EXPECT_EQ(result[i].row, expected[i].row) << dtype << " " << name_of(metric) << " rank " << i;
              EXPECT_NEAR(result[i].score, expected[i].score, 1e-9 * (1 + std::abs(expected[i].score)));
            }
          }
        }
      }
    }
  }
}

TEST(FlatSearch, SameForAnyThreadsAndBatches) {
  const std::vector<float> values = clustered_values(5000, 48, 3);
  const std::vector<float> queries = clustered_values(33, 48, 4);
  Vectors vectors(DType::f16, 48);
  vectors.append(values);
  const FlatSearch flat(vectors.view(), Metric::l2);
  const auto one = flat.search(queries, 20, Threads(1));
  EXPECT_EQ(one, flat.search(queries, 20, Threads(3)));
  for (size_t q = 0; q < 33; ++q) {
    EXPECT_EQ(one[q], flat.search(std::span(queries).subspan(q * 48, 48), 20, Threads(2))[0]);
  }
}

TEST(FlatSearch, SkipsRowsAndRefusesWrongQueries) {
  const std::vector<float> values = clustered_values(100, 8, 5);
  Vectors vectors(DType::f32, 8);
  vectors.append(values);
  std::vector<bool> skip(100);
  for (size_t i = 0; i < 100; i += 2) skip[i] = true;
  const auto found = FlatSearch(vectors.view(), Metric::cosine, skip).search({values.data(), 8}, 60, Threads(1));
  EXPECT_EQ(found[0].size(), 50U);
  EXPECT_EQ(found[0], brute_force(PlainRows(values, 8, DType::f32), Metric::cosine, values.data(), 60, skip));
  const FlatSearch flat(vectors.view(), Metric::l2);
  EXPECT_THROW(flat.search({values.data(), 7}, 1, Threads(1)), Error);
  EXPECT_THROW(flat.search({values.data(), 8}, 0, Threads(1)), Error);
  std::vector<float> wrong(8, std::nanf(""));
  EXPECT_THROW(flat.search(wrong, 1, Threads(1)), Error);
  EXPECT_THROW(vectors.append(wrong), Error);
  wrong.assign(8, 1e38F);
  EXPECT_THROW(flat.search(wrong, 1, Threads(1)), Error);
  EXPECT_THROW(Vectors(DType::i64, 4), Error);
}

TEST(Hnsw, FindsNearlyAllNeighbors) {
  constexpr int64_t kDim = 24;
  const std::vector<float> values = clustered_values(1200, kDim, 6);
  const std::vector<float> queries = clustered_values(50, kDim, 7);
  for (const DType dtype : {DType::f32, DType::f16, DType::u8}) {
    for (const Metric metric : {Metric::inner_product, Metric::cosine, Metric::l2}) {
      Vectors vectors(dtype, kDim);
      vectors.append(values);
      const HnswGraph graph = build_hnsw(vectors.view(), metric, {8, 60, 1}, Threads(2));
      check_hnsw(graph.view(), "graph");
      const auto found = HnswSearch(vectors.view(), graph.view(), metric).search(queries, 10, 120, Threads(2));
      const PlainRows oracle(values, kDim, dtype);
      int hits = 0;
      for (size_t q = 0; q < 50; ++q) {
        for (const Neighbor& truth : brute_force(oracle, metric, &queries[q * kDim], 10)) {
          hits += static_cast<int>(
              std::count_if(found[q].begin(), found[q].end(), [&](const Neighbor& n) { return n.row == truth.row; }));
        }
      }
      EXPECT_GE(hits, 475) << dtype << " " << name_of(metric);
    }
  }
}

TEST(Hnsw, GraphAndResultsDoNotDependOnThreads) {
  constexpr int64_t kDim = 16;
  const std::vector<float> values = clustered_values(3000, kDim, 8);
  Vectors vectors(DType::f32, kDim);
  vectors.append(values);
  const HnswGraph one = build_hnsw(vectors.view(), Metric::l2, {8, 40, 1}, Threads(1));
  for (const int threads : {2, 5}) {
    const HnswGraph other = build_hnsw(vectors.view(), Metric::l2, {8, 40, 1}, Threads(threads));
    EXPECT_EQ(one.base, other.base);
    EXPECT_EQ(one.upper, other.upper);
    EXPECT_EQ(one.entry, other.entry);
  }
  const HnswSearch search(vectors.view(), one.view(), Metric::l2);
  const std::span<const float> queries(values.data(), 100 * kDim);
  EXPECT_EQ(search.search(queries, 5, 20, Threads(1)), search.search(queries, 5, 20, Threads(4)));
}

TEST(Hnsw, SmallDuplicateAndDeletedRows) {
  const std::vector<float> same(40 * 4, 1.0F);
  for (const int64_t rows : {1, 2, 40}) {
    Vectors vectors(DType::f32, 4);
    vectors.append({same.data(), static_cast<size_t>(rows * 4)});
    const HnswGraph graph = build_hnsw(vectors.view(), Metric::cosine, {2, 4, 1}, Threads(1));
    check_hnsw(graph.view(), "graph");
    const auto found =
        HnswSearch(vectors.view(), graph.view(), Metric::cosine).search({same.data(), 4}, 1, 10, Threads(1));
    ASSERT_EQ(found[0].size(), 1U);
    EXPECT_NEAR(found[0][0].score, 1, 1e-6);
  }
  const std::vector<float> values = clustered_values(500, 8, 9);
  Vectors vectors(DType::f32, 8);
  vectors.append(values);
  const HnswGraph graph = build_hnsw(vectors.view(), Metric::l2, {8, 60, 1}, Threads(1));
  std::vector<bool> skip(500, true);
  skip[321] = false;
  const auto found =
      HnswSearch(vectors.view(), graph.view(), Metric::l2, skip).search({values.data(), 8}, 3, 4, Threads(1));
  ASSERT_EQ(found[0].size(), 1U);
  EXPECT_EQ(found[0][0].row, 321);
  const HnswSearch all(vectors.view(), graph.view(), Metric::l2);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();  // more than there is memory for
  EXPECT_EQ(all.search({values.data(), 8}, kMost, kMost, Threads(1)),
            all.search({values.data(), 8}, 500, 500, Threads(1)));
  const std::vector<float> wrong(8, std::nanf(""));
  EXPECT_THROW(all.search(wrong, 1, 10, Threads(1)), Error);
  HnswGraph broken = graph;
  broken.base[1] = 500;
  EXPECT_THROW(check_hnsw(broken.view(), "graph"), Error);
  broken = graph;
  broken.entry = 500;
  EXPECT_THROW(check_hnsw(broken.view(), "graph"), Error);
}

}  // namespace
}  // namespace lamina::search
