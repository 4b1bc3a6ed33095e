#pragma once

#include <string>

#include "lamina/data/prepare.h"
#include "lamina/train/recipe.h"

namespace lamina::lab {

/// The data of a study: the same token files for every run.
struct StudyData {
  train::DataChoice choice;  ///< names the token files
  int64_t vocab_size = 0;    ///< 0: unknown
  std::string hash;          ///< hash of the token files' bytes
  /// For bits per byte: the number of validation tokens except the first, and their size as text in bytes. Both are 0
  /// without validation data or without a tokenizer.
  int64_t validation_bytes = 0;
  int64_t validation_targets = 0;
};

/// Tokenizes texts into `folder`. Existing token files of the same text are reused. "synthetic" is the generated play.
StudyData prepare_study_data(const train::Recipe& recipe, const std::string& folder,
                             const data::PrepareWatch& watch = {});

}  // namespace lamina::lab
