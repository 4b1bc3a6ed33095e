#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lamina/lab/run/run_result.h"
#include "lamina/lab/study/data.h"
#include "lamina/train/trainer.h"

namespace lamina::lab {

/// The device and the threads of a run.
struct Place {
  std::string device = "cpu";
  int threads = 1;
};

/// A training run, with everything that determines its numbers.
struct RunPlan {
  Place place;
  train::Recipe recipe;          ///< resolved, with its seed and token files
  std::string hash;              ///< hash of the run's exact description
  std::string folder;            ///< named after the hash
  std::string title;             ///< for display: "rope, seed 2"
  double work = 0;               ///< estimated FLOPs
  int64_t validation_bytes = 0;  ///< as in StudyData; for bits per byte
  int64_t validation_targets = 0;
};

/// Plans a run. `recipe` must be resolved and name the data's token files. The hash covers the recipe, the
/// architecture, the bytes of the token files, the device, its threads, and the program and schema versions. It does
/// not cover file names and descriptions.
RunPlan plan_run(train::Recipe recipe, int64_t seed, const StudyData& data, const Place& place,
                 const std::string& runs);

/// Callbacks of a run; each may be empty.
struct RunHooks {
  std::function<void(const train::UpdateReport&)> on_update;
  std::function<bool()> stop;
};
/// How a run ended.
struct RunOutcome {
  std::optional<RunResult> result;  ///< empty if the run was stopped or cannot run
  std::string cannot;               ///< reason why it cannot run
  bool cached = false;              ///< whether the result was read from the folder
  double seconds = 0;               ///< time spent on the run by this process
};
/// Trains a run, resumes it, or reads its result from its folder. An Error is reported in `cannot`; a loss that is not
/// finite is a result. `keep_weights` keeps the checkpoints in the folder.
RunOutcome execute_run(const RunPlan& plan, bool keep_weights, const RunHooks& hooks);

/// Measures generation speed, and stores it with the run. The machine should be idle. Uses randomly initialised
/// weights, because the speed does not depend on them.
void measure_run_decode(const RunPlan& plan, RunResult& result, const Device& device);

}  // namespace lamina::lab
