#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <span>
#include <string>

#include "lamina/infer/evaluate.h"
#include "lamina/infer/load.h"

namespace lamina::cli {

/// How to evaluate encoders and encoder–decoders. They do not predict the next token of a text: an encoder predicts
/// hidden tokens, and an encoder–decoder predicts a target from a source.
struct ObjectiveChoice {
  std::string objective;              ///< as in a recipe; empty: that of the run, or else the usual one
  std::string source_key = "source";  ///< key of the source in JSON lines
  std::string target_key = "target";  ///< key of the target in JSON lines
  int64_t context = 0;                ///< length of a window; 0: that of the run, or else the context
  std::function<void(int64_t done, int64_t total)> progress;

  void add_to(CLI::App& command);
};

/// The result of an evaluation by an objective.
struct ObjectiveResult {
  std::string objective;   ///< name of the objective, or "targets"
  infer::Evaluation loss;  ///< loss of the predicted tokens
  double accuracy = 0;     ///< share of the predicted tokens that have the largest logit
  int64_t bytes = 0;       ///< size of the predicted text; 0: unknown
};

/// Whether the architecture has an encoder or attention that is not causal.
bool needs_objective(const arch::ArchSpec& spec);

/// The loss of the tokens that an objective hides in a text, over all windows, with a fixed seed. `path` is the model
/// as given. If it is the folder of a run, objective and window length come from its recipe, so that the result is the
/// run's validation loss.
ObjectiveResult evaluate_objective(const ObjectiveChoice& choice, const std::string& path,
                                   const infer::LoadedModel& model, std::span<const text::TokenId> ids);
/// The loss of the targets of an encoder–decoder given their sources, which are JSON lines.
ObjectiveResult evaluate_pairs(const ObjectiveChoice& choice, const infer::LoadedModel& model, const std::string& lines,
                               const std::string& name);

}  // namespace lamina::cli
