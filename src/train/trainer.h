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
  const Progress& progress;  ///< after this update
  const StepResult& result;  ///< loss, gradient norm and times
  double tokens_per_second;  ///< smoothed
  double flops_per_second;   ///< counted as three forward passes
  double seconds_left;       ///< at the current speed, without evaluations
  bool logged;               ///< a log line was written
};

/// Passed to on_evaluation after every evaluation.
struct EvaluationReport {
  const Progress& progress;  ///< with the new losses
  bool improved;             ///< lowest validation loss so far
  double seconds;            ///< time of the evaluation
};

/// Passed to on_save after every checkpoint.
struct SaveReport {
  const Progress& progress;  ///< as saved
  std::string folder;        ///< of the checkpoint
  double seconds;            ///< time of writing it
};

/// Callbacks of a run; each may be empty.
struct Watcher {
  std::function<void(const UpdateReport&)> on_update;          ///< after every update
  std::function<void(const EvaluationReport&)> on_evaluation;  ///< after every evaluation
  std::function<void(const SaveReport&)> on_save;              ///< after every checkpoint
  /// Polled after every update and between evaluation batches. True saves a checkpoint and ends the run.
  std::function<bool()> stop;
};

/// Why run() returned.
enum class Outcome { finished, stopped };

/// Time that this process spent by activity, in seconds.
struct TimeSpent {
  StepTimes steps;         ///< updates, by phase
  double evaluations = 0;  ///< all evaluations
  double checkpoints = 0;  ///< all checkpoints
  double logging = 0;      ///< writing logs and running the callbacks
  double all = 0;          ///< since run() was called
};

/// How a run is opened.
struct TrainerOptions {
  RunLock lock;                  ///< lock of a newly started run; otherwise the trainer takes it
  bool accept_new_data = false;  ///< resume even if the token files changed (data_record.h)
  CheckProgress checking;        ///< progress of the token file check at the start
  /// Connects the ranks of the run's layout, if there are several. All ranks see the same files; only rank 0 writes.
  std::shared_ptr<comm::Communicator> communicator = nullptr;
};

/// Runs the recipe of a run's folder to its end, from the last checkpoint or from the start. Writes logs and
/// checkpoints to the folder. A run stopped or killed at any point resumes bit-identically.
class Trainer {
 public:
  /// Opens the run and loads its last checkpoint, if there is one.
  Trainer(const std::string& run_folder, const Device& device, TrainerOptions options = {});

  const Recipe& recipe() const { return learner_.recipe(); }  ///< resolved
  const Progress& progress() const { return progress_; }      ///< so far
  const TimeSpent& time_spent() const { return spent_; }      ///< by this process
  Learner& learner() { return learner_; }                     ///< model and optimizer
  const Device& device() const { return learner_.device(); }  ///< where it trains
  const RunData& data() const { return data_; }               ///< of the run

  Outcome run(const Watcher& watcher);  ///< Trains until the recipe's last update, or until watcher.stop returns true.

 private:
  void load_weights_to_start_from();
  void update(const Watcher& watcher);
  void evaluate(const Watcher& watcher);
  void save(const Watcher& watcher, const char* name, bool with_state);
  void log_update(const StepResult& result, double tokens_per_second);
  bool due(int64_t every) const;
  bool writes() const { return !communicator_ || communicator_->rank() == 0; }
  /// Whether any rank wants to stop.
  bool any_rank(bool stops) const;
  bool evaluation_due() const;

  std::shared_ptr<comm::Communicator> communicator_;
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
