#pragma once

#include <string>

#include "lamina/data/prepare.h"
#include "lamina/train/recipe.h"

namespace lamina::lab {

/// The data of a study, the same token files for every run.
struct StudyData {
  train::DataChoice choice;  ///< names token files
  int64_t vocab_size = 0;    ///< 0: the files do not say
  std::string hash;          ///< of the token files' bytes
  /// For bits per byte: what the validation tokens but the first stand for in bytes of text, and how many they are;
  /// 0 where there is no validation data or no tokenizer.
  int64_t validation_bytes = 0;
  int64_t validation_targets = 0;
};

/// Texts become token files in `folder`, once: what is there of the same text is used again. "synthetic" is the
/// built-in play.
StudyData prepare_study_data(const train::Recipe& recipe, const std::string& folder,
                             const data::PrepareWatch& watch = {});

}  // namespace lamina::lab
