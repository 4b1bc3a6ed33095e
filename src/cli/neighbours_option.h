#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "lamina/cli/retriever.h"
#include "lamina/infer/chunk_retriever.h"

namespace lamina::cli {

/// The option --retrieval of commands that run models with retrieval.
struct NeighboursChoice {
  std::string index;  ///< its folder; empty: no neighbours

  void add_to(CLI::App& command);
  /// Finds neighbours for the model; empty without --retrieval. The model must outlive the function.
  infer::NeighboursOf open(const infer::LoadedModel& model, const RetrieverOptions& options) const;
};

}  // namespace lamina::cli
