#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "lamina/cli/retriever.h"
#include "lamina/infer/chunk_retriever.h"

namespace lamina::cli {

/// The option --retrieval, for commands that run models with retrieval.
struct NeighboursChoice {
  std::string index;  ///< folder of the index; empty: no neighbours

  void add_to(CLI::App& command);
  /// Returns a function that finds neighbours for the model. Empty without --retrieval. The model must outlive the
  /// function.
  infer::NeighboursOf open(const infer::LoadedModel& model, const RetrieverOptions& options) const;
};

}  // namespace lamina::cli
