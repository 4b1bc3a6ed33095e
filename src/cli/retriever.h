#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "lamina/infer/load.h"
#include "lamina/search/index.h"
#include "lamina/tensor/device.h"

namespace lamina::cli {

/// Options of commands that search an index.
struct RetrieverOptions {
  std::string by;     ///< bm25, dense or both; empty: everything that the index supports
  std::string model;  ///< model that computes the query's vector; empty: the one named by the index
  int64_t top = 5;
  int64_t beam = 100;
  bool exact = false;

  void add_to(CLI::App& command);  ///< --by, --embedding-model, --beam and --exact
};

/// An index and, if needed, the model that computes vectors of queries.
class Retriever {
 public:
  Retriever(const std::string& folder, const RetrieverOptions& options, const Device& device);

  std::vector<search::Hit> search(const std::string& query, int64_t top) const;
  const search::Index& index() const { return index_; }
  search::RankBy by() const { return options_.by; }

 private:
  search::Index index_;
  search::SearchOptions options_;
  std::unique_ptr<infer::LoadedModel> model_;
  Device device_;
};

}  // namespace lamina::cli
