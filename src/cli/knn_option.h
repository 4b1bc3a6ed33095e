#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "lamina/infer/knn.h"

namespace lamina::cli {

/// Options of commands that interpolate predictions with neighbours (kNN-LM): --knn and its parameters.
struct KnnChoice {
  std::string store;  ///< empty: no neighbours
  infer::KnnOptions options;

  void add_to(CLI::App& command);
  /// Opens the neighbours for a model. Null without --knn.
  std::shared_ptr<const infer::KnnLm> open(nn::Model& model) const;
};

}  // namespace lamina::cli
