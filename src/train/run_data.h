#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lamina/data/prepare.h"
#include "lamina/data/token_file.h"
#include "lamina/train/recipe.h"

namespace lamina::train {

struct RunData {
  data::TokenFile train;
  std::optional<data::TokenFile> validation;
};
/// The token files of a run: those made for it, in its folder, or those its recipe names.
RunData open_run_data(const std::string& run_folder, const Recipe& recipe);

/// The recipe with its data as token files under absolute names. A text is turned into them below `folder`, unless that
/// is there already; tokenizer.json lies beside them.
Recipe with_token_files(Recipe recipe, const std::string& folder, const data::PrepareWatch& watch = {});

struct StartOptions {
  bool force = false;  ///< a run that is there is replaced; what is no run never is
  /// Sees the resolved recipe before the folder appears and may throw.
  std::function<void(const Recipe&)> approve;
  data::PrepareWatch watch;
};
/// Makes the folder of a run, whole or not at all: turns a text into token files, resolves the recipe, writes
/// recipe.json and tokenizer.json.
void start_run(const std::string& folder, const Recipe& recipe, const StartOptions& options = {});

}  // namespace lamina::train
