#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lamina/search/flat_search.h"
#include "lamina/search/vector_sections.h"

namespace lamina::search {

/// Collects hidden states and the tokens that follow them, for kNN-LM.
class StateStoreBuilder {
 public:
  /// `dtype` must be f32, f16 or u8.
  StateStoreBuilder(DType dtype, int64_t dim, int64_t vocab) : vectors_(dtype, dim), vocab_(vocab) {}

  /// Adds states [n, dim], and the token after each.
  void add(std::span<const float> states, std::span<const int64_t> next_tokens);
  int64_t count() const { return vectors_.count(); }
  /// The model's state after a fixed text [dim], by which readers recognize the model.
  void set_probe(std::vector<float> probe);
  /// Writes the store atomically. `graph`: also builds a graph for approximate search.
  void write(const std::string& path, const std::string& model, bool graph, const HnswOptions& options,
             const Threads& threads) const;

 private:
  Vectors vectors_;
  int64_t vocab_;
  std::vector<uint32_t> tokens_;
  std::vector<float> probe_;
};

/// A memory-mapped store of hidden states and their next tokens. Distances are squared Euclidean.
class StateStore {
 public:
  static std::shared_ptr<const StateStore> open(const std::string& path);
  static bool is_store(const std::string& path);  ///< whether a file is a store, possibly damaged
  /// Like open(), for bytes in memory. Throws an Error if anything is inconsistent.
  static std::shared_ptr<const StateStore> parse(SectionFile file);

  int64_t count() const { return vectors_.count; }
  int64_t dim() const { return vectors_.dim; }
  int64_t vocab() const { return vocab_; }  ///< all tokens are below this number
  DType dtype() const { return vectors_.dtype; }
  /// Median, over a sample of keys, of the squared distance to the eighth nearest other key. Serves as unit of
  /// temperatures.
  double scale() const { return scale_; }
  /// Path of the model that computed the states.
  std::string_view model() const { return {model_.data(), model_.size()}; }
  std::span<const float> probe() const { return probe_; }  ///< see StateStoreBuilder; empty: the file has none
  bool has_graph() const { return graph_.has_value(); }
  size_t bytes() const { return file_.bytes(); }
  uint32_t token(int64_t row) const { return tokens_[static_cast<size_t>(row)]; }

  /// The nearest `k` keys of each query [n, dim]; scores are negated squared distances. `beam` 0: exact search;
  /// otherwise approximate search with this beam, which throws an Error if there is no graph.
  std::vector<std::vector<Neighbor>> search(std::span<const float> queries, int64_t k, int64_t beam,
                                            const Threads& threads) const;

 private:
  SectionFile file_;
  VectorsView vectors_;
  std::optional<HnswView> graph_;
  std::span<const uint32_t> tokens_;
  std::span<const char> model_;
  std::span<const float> probe_;
  int64_t vocab_ = 0;
  double scale_ = 1;
  std::optional<FlatSearch> flat_;
  std::optional<HnswSearch> approximate_;
};

}  // namespace lamina::search
