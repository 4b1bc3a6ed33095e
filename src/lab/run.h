#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lamina/lab/run_result.h"
#include "lamina/lab/study_data.h"
#include "lamina/train/trainer.h"

namespace lamina::lab {

/// Where a run is computed.
struct Place {
  std::string device = "cpu";
  int threads = 1;
};

/// One training: everything that decides its numbers.
struct RunPlan {
  Place place;
  train::Recipe recipe;  ///< resolved, with its seed and token files
  std::string hash;      ///< of its exact description
  std::string folder;    ///< named after it
  std::string title;     ///< for people: "rope, seed 2"
  double work = 0;       ///< operations, roughly
};

/// `recipe` is resolved and names the data's token files. What names files and what is only said to people is no part
/// of the hash; the files' bytes, the device, its threads and the versions of program and description are.
RunPlan plan_run(train::Recipe recipe, int64_t seed, const StudyData& data, const Place& place,
                 const std::string& runs);

struct RunHooks {
  std::function<void(const train::UpdateReport&)> on_update;
  std::function<bool()> stop;
};
struct RunOutcome {
  std::optional<RunResult> result;  ///< nothing: stopped, or it cannot be run
  std::string cannot;               ///< the reason
  bool cached = false;              ///< read back
  double seconds = 0;               ///< that making it took here and now
};
/// Trains, or goes on where it was stopped, or reads back what is there. What fails is told in `cannot`; a loss that is
/// not finite is a result. `keep_weights`: the models stay in the folder.
RunOutcome execute_run(const RunPlan& plan, const StudyData& data, bool keep_weights, const RunHooks& hooks);

/// Measures generation, for which the machine should have nothing else to do, and keeps it with the run. Its speed does
/// not hang on the weights' values: fresh ones are drawn.
void measure_run_decode(const RunPlan& plan, RunResult& result, const Device& device);

}  // namespace lamina::lab
