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

/// Runs a study to its end, or until it is asked to stop; what its folder holds of it already is read back.
/// results.json there is written after every run. A variant that cannot be built, and a run that cannot be trained, are
/// results. An Error where nothing can be run at all: the folder, the data, the base.
Results run_study(const Study& study, const CompareOptions& options);

}  // namespace lamina::lab
