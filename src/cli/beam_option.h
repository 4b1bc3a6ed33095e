#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "lamina/infer/generator.h"

namespace lamina::cli {

/// The options --beams, --length-penalty and --early-stopping.
struct BeamChoice {
  int64_t count = 0;  ///< 0: no beam search
  double length_penalty = 1.0;
  std::string early_stopping = "heuristic";

  void add_to(CLI::App& command);
  /// The best answer of a beam search for each prompt.
  std::vector<infer::Generation> search(nn::Model& model, const std::vector<std::vector<text::TokenId>>& prompts,
                                        const infer::GenerateOptions& given) const;
};

}  // namespace lamina::cli
