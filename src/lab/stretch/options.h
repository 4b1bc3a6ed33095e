#pragma once

#include "lamina/lab/study/study.h"

namespace lamina::lab {

/// Options of `lamina stretch`: the models to measure beyond their training length, and how.
struct StretchOptions {
  std::string data;                  ///< text or token file
  std::string recipe = "stretch";    ///< recipe for the runs on text
  std::vector<std::string> changes;  ///< recipe changes, path=value
  std::vector<std::string> kinds;    ///< names of position kinds and RoPE scalings; empty: all
  int64_t length = 0;                ///< training length; 0: that of the recipe, or the model's context
  StretchSettings settings;          ///< `scalings` is set from `kinds`
};

/// The study of mode stretch for these options. Its base uses RoPE, unless `kinds` contains neither RoPE nor a scaling.
/// Throws an arch::SpecError that lists all problems of kinds and recipes.
Study stretch_study(const StretchOptions& options);

/// The study that trains the passkey models: the same variants with the passkey recipe.
Study passkey_study(const Study& study);

}  // namespace lamina::lab
