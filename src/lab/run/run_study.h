#pragma once

#include "lamina/lab/run/results.h"
#include "lamina/lab/run/runner.h"

namespace lamina::lab {

/// Options of run_study().
struct StudyOptions {
  std::string folder;   ///< the study's folder, with study.json, data/, runs/, results.json
  std::string command;  ///< command line, stored in the results
  StudyWatcher watcher;
  data::PrepareWatch preparing;
};

/// Runs a study until it ends or is asked to stop. Finished runs in the folder are reused. Updates results.json
/// whenever a run ends. Before the first update, throws an Error that lists all problems of the folder, the data and
/// the variants. A run that diverges or fails during training is a result, not an Error.
Results run_study(const Study& study, const StudyOptions& options);

}  // namespace lamina::lab
