// Vector search against Debian's faiss (exact) and hnswlib (graphs), on 10⁵ × 256 clustered vectors: 1000 centres drawn
// from N(0, 1) per dimension, each vector a centre chosen at random plus N(0, 1) noise. Queries are drawn in the same
// way. Graphs are compared at the beam width at which each finds 95 % of the true ten neighbours (recall@10).
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "lamina/base/error.h"
#include "lamina/search/flat_search.h"
#include "lamina/search/hnsw.h"
#include "support/suite.h"
#ifdef LAMINA_FAISS
#include <faiss/IndexFlat.h>
#endif
#ifdef LAMINA_HNSWLIB
#include <hnswlib/hnswlib.h>
#endif

namespace lamina::bench {
namespace {

using search::Metric;
using search::Neighbor;

constexpr int64_t kRows = 100000;
constexpr int64_t kDim = 256;
constexpr int64_t kQueries = 1000;
constexpr int64_t kBest = 10;
constexpr double kRecall = 0.95;

std::vector<float> clustered_vectors(int64_t rows, uint32_t seed) {
  constexpr int64_t kCentres = 1000;
  std::mt19937 centre_random(1);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> centres(kCentres * kDim);
  for (float& value : centres) value = normal(centre_random);
  std::vector<float> vectors(static_cast<size_t>(rows * kDim));
  for (int64_t row = 0; row < rows; ++row) {
    const float* centre = &centres[random() % kCentres * kDim];
    for (int64_t i = 0; i < kDim; ++i) vectors[static_cast<size_t>(row * kDim + i)] = centre[i] + normal(random);
  }
  return vectors;
}

using Found = std::vector<std::vector<int64_t>>;

double recall_of(const Found& found, const Found& truth) {
  int64_t hits = 0;
  for (size_t q = 0; q < truth.size(); ++q) {
    for (const int64_t row : truth[q]) hits += std::count(found[q].begin(), found[q].end(), row);
  }
  return static_cast<double>(hits) / static_cast<double>(truth.size() * kBest);
}

Found rows_of(const std::vector<std::vector<Neighbor>>& results) {
  Found found;
  for (const auto& result : results) {
    found.emplace_back();
    for (const Neighbor& neighbor : result) found.back().push_back(neighbor.row);
  }
  return found;
}

double elapsed(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The smallest beam with the wanted recall.
int64_t beam_for(const std::function<Found(int64_t beam)>& search, const Found& truth) {
  int64_t low = kBest;
  int64_t high = kBest;
  while (high < 4096 && recall_of(search(high), truth) < kRecall) {
    low = high + 1;
    high *= 2;
  }
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    recall_of(search(middle), truth) < kRecall ? low = middle + 1 : high = middle;
  }
  return high;
}

void add_flat(Context& context, const std::vector<float>& base, const std::vector<float>& queries) {
  omp_set_num_threads(context.device().threads().count());
#ifdef LAMINA_FAISS
  faiss::IndexFlatL2 peer(kDim);
  peer.add(kRows, base.data());
#endif
  for (const DType dtype : {DType::f32, DType::f16}) {
    search::Vectors vectors(dtype, kDim);
    vectors.append(base);
    const search::FlatSearch flat(vectors.view(), Metric::l2);
    for (const int64_t batch : {1, 16, 256}) {
      const std::span<const float> some(queries.data(), static_cast<size_t>(batch * kDim));
      const auto ours = [&] { flat.search(some, kBest, context.device().threads()); };
      std::string what = str("flat 1e5 x 256 l2 ", dtype, ", batch ", batch);
#ifdef LAMINA_FAISS
      std::vector<float> distances(static_cast<size_t>(batch * kBest));
      std::vector<faiss::Index::idx_t> labels(distances.size());
      const auto theirs = [&] { peer.search(batch, some.data(), kBest, distances.data(), labels.data()); };
      const auto [time, peer_time] = context.seconds(ours, theirs);
      const auto each = 1e3 / static_cast<double>(batch);
      context.add({what, time * each, peer_time * each, "ms/query", "faiss f32", {}, 1.0});
#else
      context.add({what, context.seconds(ours) * 1e3 / static_cast<double>(batch), 0, "ms/query", ""});
#endif
    }
  }
}

void add_graphs(Context& context, const std::vector<float>& base, const std::vector<float>& queries) {
  const Threads one(1);
  const Threads& all = context.device().threads();
  search::Vectors exact(DType::f32, kDim);
  exact.append(base);
  const Found truth = rows_of(search::FlatSearch(exact.view(), Metric::l2).search(queries, kBest, all));
#ifdef LAMINA_HNSWLIB
  hnswlib::L2Space space(kDim);
  hnswlib::HierarchicalNSW<float> peer(&space, kRows, 16, 200);
  const double peer_build = elapsed([&] {
    peer.addPoint(base.data(), 0);
    std::vector<std::thread> workers;
    std::atomic<size_t> next = 1;
    for (int i = 0; i < all.count(); ++i) {
      workers.emplace_back([&] {
        for (size_t row = next++; row < kRows; row = next++) peer.addPoint(&base[row * kDim], row);
      });
    }
    for (std::thread& worker : workers) worker.join();
  });
  const auto theirs = [&](int64_t beam) {
    Found found;
    peer.setEf(static_cast<size_t>(beam));
    for (int64_t q = 0; q < kQueries; ++q) {
      auto queue = peer.searchKnn(&queries[static_cast<size_t>(q * kDim)], kBest);
      found.emplace_back();
      for (; !queue.empty(); queue.pop()) found.back().push_back(static_cast<int64_t>(queue.top().second));
    }
    return found;
  };
  const int64_t peer_beam = beam_for(theirs, truth);
  const double peer_bytes = static_cast<double>(kRows) * (kDim * 4 + 33 * 4 + 8);  // vectors, links, labels
#endif
  for (const DType dtype : {DType::f32, DType::f16, DType::u8}) {
    search::Vectors vectors(dtype, kDim);
    vectors.append(base);
    search::HnswGraph graph;
    const double build = elapsed([&] { graph = search::build_hnsw(vectors.view(), Metric::l2, {}, all); });
    const search::HnswSearch hnsw(vectors.view(), graph.view(), Metric::l2);
    const auto ours = [&](int64_t beam) { return rows_of(hnsw.search(queries, kBest, beam, one)); };
    const int64_t beam = beam_for(ours, truth);
    const std::string name = str("hnsw 1e5 x 256 l2 ", dtype);
    const auto bytes = static_cast<double>(kRows * (kDim * static_cast<int64_t>(size_of(dtype)) + 4) +
                                           static_cast<int64_t>(graph.base.size() + graph.upper.size()) * 4);
#ifdef LAMINA_HNSWLIB
    const auto [time, peer_time] = context.seconds([&] { ours(beam); }, [&] { theirs(peer_beam); });
    context.add({str(name, ", recall 0.95, beam ", beam, " (", peer_beam, ")"), kQueries / time, kQueries / peer_time,
                 "query/s", "hnswlib f32, 1 thread", 1.0});
    context.add({name + ", build", build, peer_build, "s", "hnswlib, not deterministic"});
    context.add({name + ", memory", bytes * 1e-6, peer_bytes * 1e-6, "MB", "hnswlib"});
#else
    context.add(
        {str(name, ", recall 0.95, beam ", beam), kQueries / context.seconds([&] { ours(beam); }), 0, "query/s", ""});
    context.add({name + ", build", build, 0, "s", ""});
    context.add({name + ", memory", bytes * 1e-6, 0, "MB", ""});
#endif
  }
}

}  // namespace

LAMINA_BENCH_SUITE(search_vectors) {
  const std::vector<float> base = clustered_vectors(kRows, 2);
  const std::vector<float> queries = clustered_vectors(kQueries, 3);
  add_flat(context, base, queries);
  add_graphs(context, base, queries);
}

}  // namespace lamina::bench
