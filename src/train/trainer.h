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

/// Passed to on_update after every update.
struct UpdateReport {
  const Progress& progress;
  const StepResult& result;
  double tokens_per_second;  ///< smoothed
  double flops_per_second;
  double seconds_left;  ///< at the current speed, without evaluations
  bool logged;          ///< a log line was written
};

struct EvaluationReport {
  const Progress& progress;
  bool improved;  ///< lowest validation loss so far
  double seconds;
};

struct SaveReport {
  const Progress& progress;
  std::string folder;
  double seconds;
};

/// Callbacks of a run; each may be empty.
struct Watcher {
  std::function<void(const UpdateReport&)> on_update;
  std::function<void(const EvaluationReport&)> on_evaluation;
  std::function<void(const SaveReport&)> on_save;
  /// Polled after every update and between evaluation batches. True saves a checkpoint and ends the run.
  std::function<bool()> stop;
};

enum class Outcome { finished, stopped };

/// Time that this process spent by activity, in seconds.
struct TimeSpent {
  StepTimes steps;
  double evaluations = 0;
  double checkpoints = 0;
  double logging = 0;  ///< writing logs and running the callbacks
  double all = 0;
};

struct TrainerOptions {
  RunLock lock;                  ///< lock of a newly started run; otherwise the trainer takes it
  bool accept_new_data = false;  ///< resume even if the token files changed (data_record.h)
  CheckProgress checking;        ///< progress of the token file check at the start
};

/// Runs the recipe of a run's folder to its end, from the last checkpoint or from the start. Writes logs and
/// checkpoints to the folder. A run stopped or killed at any point resumes bit-identically.
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
  double flops_per_token_;  ///< per token of an update
  RunData data_;
  Progress progress_;
  TimeSpent spent_;
  bool began_ = false;               ///< this process has completed an update
  double update_seconds_ = 0;        ///< smoothed
  std::function<double()> elapsed_;  ///< seconds of the whole run so far
  std::unique_ptr<LogFile> log_;
  std::unique_ptr<EventWriter> events_;
};

}  // namespace lamina::train
