#include "lamina/search/state_store.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace lamina::search {
namespace {

constexpr std::string_view kStoreKind = "KNNS";
constexpr int64_t kSampledKeys = 256;
constexpr int64_t kScaleRank = 8;

/// See StateStore::scale. Samples keys at equal distances.
double neighbor_scale(const VectorsView& vectors, const Threads& threads) {
  const auto dim = static_cast<size_t>(vectors.dim);
  const int64_t samples = std::min(vectors.count, kSampledKeys);
  std::vector<float> queries(static_cast<size_t>(samples) * dim);
  for (int64_t i = 0; i < samples; ++i) {
    read_row(vectors, i * vectors.count / samples, std::span(queries).subspan(static_cast<size_t>(i) * dim, dim));
  }
  std::vector<double> distances;
  for (const auto& found : FlatSearch(vectors, Metric::l2).search(queries, kScaleRank + 1, threads)) {
    distances.push_back(-found.back().score);
  }
  if (distances.empty()) return 1;
  std::sort(distances.begin(), distances.end());
  const double median = distances[distances.size() / 2];
  return median > 0 ? median : 1;
}

}  // namespace

void StateStoreBuilder::add(std::span<const float> states, std::span<const int64_t> next_tokens) {
  LAMINA_CHECK(states.size() == next_tokens.size() * static_cast<size_t>(vectors_.dim()),
               "state store: ", states.size(), " values for ", next_tokens.size(), " tokens of ", vectors_.dim(),
               " dimensions");
  for (const int64_t token : next_tokens) {
    LAMINA_CHECK(token >= 0 && token < vocab_, "state store: token ", token, ", the vocabulary has ", vocab_);
    tokens_.push_back(static_cast<uint32_t>(token));
  }
  vectors_.append(states);
}

void StateStoreBuilder::set_probe(std::vector<float> probe) {
  LAMINA_CHECK(static_cast<int64_t>(probe.size()) == vectors_.dim(), "state store: a probe of ", probe.size(),
               " values for states of ", vectors_.dim(), " dimensions");
  probe_ = std::move(probe);
}

void StateStoreBuilder::write(const std::string& path, const std::string& model, bool graph, const HnswOptions& options,
                              const Threads& threads) const {
  LAMINA_CHECK(count() > 0, "state store: no states; give a text of at least two tokens");
  const VectorsView vectors = vectors_.view();
  SectionWriter out(path, kStoreKind);
  const std::array<int64_t, 1> info{vocab_};
  const std::array<double, 1> scale{neighbor_scale(vectors, threads)};
  out.add<int64_t>("knn.info", info);
  out.add<double>("knn.scale", scale);
  out.add<char>("knn.model", model);
  if (!probe_.empty()) out.add<float>("knn.probe", probe_);
  out.add<uint32_t>("knn.tokens", tokens_);
  write_vectors(out, vectors);
  if (graph) write_graph(out, build_hnsw(vectors, Metric::l2, options, threads).view());
  out.publish();
}

std::shared_ptr<const StateStore> StateStore::open(const std::string& path) {
  return parse(SectionFile::open(path, kStoreKind));
}

bool StateStore::is_store(const std::string& path) { return is_section_file(path, kStoreKind); }

std::shared_ptr<const StateStore> StateStore::parse(SectionFile file) {
  auto store = std::make_shared<StateStore>();
  store->file_ = std::move(file);
  const SectionFile& from = store->file_;
  store->vectors_ = read_vectors(from);
  const auto count = static_cast<size_t>(store->vectors_.count);
  store->graph_ = read_graph(from, store->vectors_.count);
  store->tokens_ = from.section_of<uint32_t>("knn.tokens", count);
  store->model_ = from.section<char>("knn.model");
  if (from.has("knn.probe")) {
    store->probe_ = from.section_of<float>("knn.probe", static_cast<size_t>(store->vectors_.dim));
  }
  store->vocab_ = from.section_of<int64_t>("knn.info", 1)[0];
  store->scale_ = from.section_of<double>("knn.scale", 1)[0];
  LAMINA_CHECK(count > 0 && store->vocab_ >= 1 && std::isfinite(store->scale_) && store->scale_ > 0, from.name(),
               ": a store of ", count, " states, vocabulary ", store->vocab_, ", scale ", store->scale_,
               "; expected positive numbers. Make it again");
  for (const uint32_t token : store->tokens_) {
    LAMINA_CHECK(int64_t{token} < store->vocab_, from.name(), ": holds token ", token, " of a vocabulary of ",
                 store->vocab_, "; make it again");
  }
  store->flat_.emplace(store->vectors_, Metric::l2);
  if (store->graph_) store->approximate_.emplace(store->vectors_, *store->graph_, Metric::l2);
  return store;
}

std::vector<std::vector<Neighbor>> StateStore::search(std::span<const float> queries, int64_t k, int64_t beam,
                                                      const Threads& threads) const {
  if (beam == 0) return flat_->search(queries, k, threads);
  LAMINA_CHECK(approximate_, file_.name(), ": has no graph for approximate search; make it with --graph");
  return approximate_->search(queries, k, beam, threads);
}

}  // namespace lamina::search
