#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "lamina/infer/load.h"

namespace lamina::cli {

/// The draft model of speculative decoding: --draft, --draft-weights and --draft-tokens.
struct DraftChoice {
  std::string model;    ///< empty: no draft model
  std::string weights;  ///< format of the draft model's weights; empty: that of the target
  int64_t tokens = 0;   ///< see infer::EngineOptions::draft_tokens

  void add_to(CLI::App& command);
  /// Loads a draft model for `target` from `path`. That may be a preset, which has random weights and the target's
  /// vocabulary size. `target_weights` is the format of the target's weights. Throws an Error if the tokenizers differ.
  infer::LoadedModel load(const std::string& path, const infer::LoadedModel& target, const std::string& target_weights,
                          const Device& device) const;
};

}  // namespace lamina::cli
