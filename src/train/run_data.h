#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lamina/data/prepare.h"
#include "lamina/data/token_file.h"
#include "lamina/train/learner.h"
#include "lamina/train/run_lock.h"

namespace lamina::train {

/// What a run learns from and is measured on.
struct RunData {
  Learner::BatchAt batch_at;
  std::optional<EvaluationData> validation;
  std::optional<EvaluationData> longer;  ///< of a task: examples longer than those learned from
  std::string about;                     ///< for people, a few words
  // Of a text only.
  std::optional<data::TokenFile> train_tokens;
  std::optional<data::TokenFile> validation_tokens;
};
/// The token files made for the run, in its folder, those its recipe names, or its task.
RunData open_run_data(const std::string& run_folder, const Recipe& recipe);

/// The recipe with its data as token files under absolute names. A text is turned into them below `folder`, unless that
/// is there already; tokenizer.json lies beside them.
Recipe with_token_files(Recipe recipe, const std::string& folder, const data::PrepareWatch& watch = {});

struct StartOptions {
  /// Replaces a run that is there; a folder that is no run is never replaced. The old run is kept aside until the new
  /// one has made its first update (run_lock.h). An Error if another process is training it.
  bool force = false;
  /// Sees the resolved recipe before the folder appears and may throw.
  std::function<void(const Recipe&)> approve;
  data::PrepareWatch watch;
};
/// Makes the folder of a run, whole or not at all: turns a text into token files, resolves the recipe, writes
/// recipe.json and tokenizer.json. Returns the lock of the new run.
RunLock start_run(const std::string& folder, const Recipe& recipe, const StartOptions& options = {});

}  // namespace lamina::train
