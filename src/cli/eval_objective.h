#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <span>
#include <string>

#include "lamina/infer/evaluate.h"
#include "lamina/infer/load.h"

namespace lamina::cli {

/// How encoders and encoder–decoders are evaluated. They do not predict the next token of a text: an encoder
/// predicts hidden tokens, an encoder–decoder predicts a target from a source.
struct ObjectiveChoice {
  std::string objective;  ///< as in a recipe; empty: that of the run, else the usual one of the architecture
  std::string source_key = "source";  ///< of JSON lines
  std::string target_key = "target";  ///< of JSON lines
  int64_t context = 0;                ///< tokens of a window; 0: those of the run, else the architecture's context
  std::function<void(int64_t done, int64_t total)> progress;

  void add_to(CLI::App& command);
};

struct ObjectiveResult {
  std::string objective;   ///< name of the objective, or "targets"
  infer::Evaluation loss;  ///< of the predicted tokens
  double accuracy = 0;     ///< share of the predicted tokens that the model ranks first
  int64_t bytes = 0;       ///< size of the predicted text; 0: unknown
};

/// Whether the architecture has an encoder or attention that is not causal.
bool needs_objective(const arch::ArchSpec& spec);

/// Loss of what an objective hides in a text, over all windows with a fixed seed. `path` is the model as given: the
/// folder of a run has the objective and the window of its recipe, which gives the run's validation loss.
ObjectiveResult evaluate_objective(const ObjectiveChoice& choice, const std::string& path,
                                   const infer::LoadedModel& model, std::span<const text::TokenId> ids);
/// Loss of the targets of an encoder–decoder given their sources, of JSON lines.
ObjectiveResult evaluate_pairs(const ObjectiveChoice& choice, const infer::LoadedModel& model, const std::string& lines,
                               const std::string& name);

}  // namespace lamina::cli
