#pragma once

#include "lamina/lab/results.h"
#include "lamina/lab/runner.h"

namespace lamina::lab {

struct CompareOptions {
  std::string folder;   ///< of the study: study.json, data/, runs/, results.json
  std::string command;  ///< how it was called, for the results
  StudyWatcher watcher;
  data::PrepareWatch preparing;
};

/// Runs a study to its end, or until it is asked to stop. Runs that its folder holds already are read back.
/// results.json is written after every run. An Error that lists every problem, before the first update, if the folder,
/// the data or any variant cannot be used. A run that diverges, or fails while it trains, is a result.
Results run_study(const Study& study, const CompareOptions& options);

}  // namespace lamina::lab
