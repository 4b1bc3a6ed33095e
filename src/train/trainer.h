#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lamina/train/data_record.h"
#include "lamina/train/log_file.h"
#include "lamina/train/run_data.h"
#include "lamina/train/run_folder.h"

namespace lamina::train {

/// After every update.
struct UpdateReport {
  const Progress& progress;
  const StepResult& result;
  double tokens_per_second;  ///< of late
  double flops_per_second;
  double seconds_left;  ///< at that speed, evaluations not counted
  bool logged;          ///< a line of the log was written
};

struct EvaluationReport {
  const Progress& progress;
  bool improved;  ///< the best so far
  double seconds;
};

struct SaveReport {
  const Progress& progress;
  std::string folder;
  double seconds;
};

/// Who watches a run; any may be empty.
struct Watcher {
  std::function<void(const UpdateReport&)> on_update;
  std::function<void(const EvaluationReport&)> on_evaluation;
  std::function<void(const SaveReport&)> on_save;
  /// Asked after every update and between the passes of an evaluation: true saves and returns.
  std::function<bool()> stop;
};

enum class Outcome { finished, stopped };

/// Where the time of this process went, in seconds.
struct TimeSpent {
  StepTimes steps;
  double evaluations = 0;
  double checkpoints = 0;
  double logging = 0;  ///< logs, and what the watcher does with reports
  double all = 0;
};

struct TrainerOptions {
  RunLock lock;                  ///< of a run that was just started; taken otherwise
  bool accept_new_data = false;  ///< resume although the token files changed (data_record.h)
  CheckProgress checking;        ///< of the token files, read once at the start
};

/// Runs the recipe of a run's folder to its end, from its last checkpoint or from the beginning, writing logs and
/// checkpoints there. Stopped or killed at any time and run again it gives the same weights, bit by bit.
class Trainer {
 public:
  Trainer(const std::string& run_folder, const Device& device, TrainerOptions options = {});

  const Recipe& recipe() const { return learner_.recipe(); }
  const Progress& progress() const { return progress_; }
  const TimeSpent& time_spent() const { return spent_; }
  Learner& learner() { return learner_; }
  const Device& device() const { return learner_.device(); }
  const RunData& data() const { return data_; }

  Outcome run(const Watcher& watcher);

 private:
  void load_weights_to_start_from();
  void update(const Watcher& watcher);
  void evaluate(const Watcher& watcher);
  void save(const Watcher& watcher, const char* name, bool with_state);
  void log_update(const StepResult& result, double tokens_per_second);
  bool due(int64_t every) const;
  bool evaluation_due() const;

  RunFolder folder_;
  Learner learner_;
  double flops_per_token_;  ///< of an update
  RunData data_;
  Progress progress_;
  TimeSpent spent_;
  bool began_ = false;               ///< this process has made an update
  double update_seconds_ = 0;        ///< smoothed
  std::function<double()> elapsed_;  ///< seconds of the whole run so far
  std::unique_ptr<LogFile> log_;
  std::unique_ptr<EventWriter> events_;
};

}  // namespace lamina::train
