#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lamina/data/prepare.h"
#include "lamina/data/token_file.h"
#include "lamina/train/learner.h"
#include "lamina/train/run_lock.h"

namespace lamina::train {

/// Training and evaluation data of a run.
struct RunData {
  Learner::BatchAt batch_at;                 ///< returns the batch of a pass
  std::optional<EvaluationData> validation;  ///< data for the validation loss
  std::optional<EvaluationData> longer;      ///< tasks only: examples that are longer than those in training
  std::string about;                         ///< short description for users
  // Only for text.
  std::optional<data::TokenFile> train_tokens;       ///< training tokens
  std::optional<data::TokenFile> validation_tokens;  ///< validation tokens
  std::optional<data::TokenFile> train_neighbours;   ///< neighbours of the training tokens' chunks
};
/// Opens the recipe's task, the token files in the run's folder, or the token files named by the recipe.
RunData open_run_data(const std::string& run_folder, const Recipe& recipe);

/// Returns the recipe with absolute paths of token files as its data. If the data is a text, creates token files and
/// tokenizer.json under `folder`, unless they exist.
Recipe with_token_files(Recipe recipe, const std::string& folder, const data::PrepareWatch& watch = {});

/// How a run is started.
struct StartOptions {
  /// Replaces an existing run, but never a folder that is not a run. The old run is kept until the new one completes
  /// its first update (run_lock.h). Throws an Error if another process is training the old run.
  bool force = false;
  /// Called with the resolved recipe before the folder is created. May throw to cancel.
  std::function<void(const Recipe&)> approve;
  data::PrepareWatch watch;  ///< progress of tokenizing a text
};
/// Creates the folder of a run atomically: tokenizes the text, resolves the recipe, and writes recipe.json and
/// tokenizer.json. Returns the lock of the new run.
RunLock start_run(const std::string& folder, const Recipe& recipe, const StartOptions& options = {});

}  // namespace lamina::train
