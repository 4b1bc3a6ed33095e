#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "lamina/infer/load.h"

namespace lamina::cli {

/// The draft model of speculative decoding: --draft, --draft-weights and --draft-tokens.
struct DraftChoice {
  std::string model;    ///< empty: none
  std::string weights;  ///< empty: the format of the target
  int64_t tokens = 0;   ///< as infer::EngineOptions::draft_tokens

  void add_to(CLI::App& command);
  /// Loads a draft model for `target` from `path`, which may be a preset with random weights and gets the target's
  /// vocabulary size then. `target_weights` is the format of the target's weights. Throws Error if the tokenizers
  /// differ.
  infer::LoadedModel load(const std::string& path, const infer::LoadedModel& target, const std::string& target_weights,
                          const Device& device) const;
};

}  // namespace lamina::cli
