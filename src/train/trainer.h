#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lamina/train/checkpoint_saver.h"
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

/// Passed to on_save when a checkpoint is complete, which may be some updates after its own.
struct SaveReport {
  const Progress& progress;  ///< as saved
  std::string folder;        ///< of the checkpoint
  double seconds;            ///< from the copy of the state until it was complete
};

/// Passed to on_save_failed. The run goes on, and the next save tries again.
struct SaveFailure {
  const Progress& progress;  ///< what should have been saved
  std::string folder;        ///< still holds the checkpoint before it, if there was one
  std::string reason;        ///< what failed and what to do
};

/// Callbacks of a run; each may be empty.
struct Watcher {
  std::function<void(const UpdateReport&)> on_update;          ///< after every update
  std::function<void(const EvaluationReport&)> on_evaluation;  ///< after every evaluation
  std::function<void(const SaveReport&)> on_save;              ///< after every checkpoint
  /// Polled after every update and between evaluation batches. True saves a checkpoint and ends the run.
  std::function<bool()> stop;
  std::function<void(const SaveFailure&)> on_save_failed = {};  ///< after every save that failed
};

/// Why run() returned.
enum class Outcome { finished, stopped };

/// Time that this process spent by activity, in seconds.
struct TimeSpent {
  StepTimes steps;         ///< updates, by phase
  double evaluations = 0;  ///< all evaluations
  double checkpoints = 0;  ///< copying states and waiting for saves; what the thread writes meanwhile is not counted
  double logging = 0;      ///< writing logs and running the callbacks
  double all = 0;          ///< since run() was called
};

/// How a run is opened.
struct TrainerOptions {
  RunLock lock;                  ///< lock of a newly started run; otherwise the trainer takes it
  bool accept_new_data = false;  ///< resume even if the token files changed (data_record.h)
  CheckProgress checking;        ///< progress of the token file check at the start
  /// Connects the ranks of the run's layout, if there are several. All ranks see the same files. Rank 0 writes logs;
  /// every rank writes its pieces of checkpoints.
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

  /// Trains until the recipe's last update, or until watcher.stop returns true. Checkpoints are written beside
  /// training. A failed save is reported and tried again; if the last one failed, run() throws Error.
  Outcome run(const Watcher& watcher);

 private:
  void load_weights_to_start_from();
  void update(const Watcher& watcher);
  void evaluate(const Watcher& watcher);
  Outcome run_updates(const Watcher& watcher);
  void save(const Watcher& watcher, const char* name, bool with_state);
  /// Waits for the save in flight, if there is one.
  void finish_save(const Watcher& watcher);
  void take_result(const Watcher& watcher, const FinishedSave& save);
  void log_update(const StepResult& result, double tokens_per_second);
  bool due(int64_t every) const;
  bool writes() const { return !communicator_ || communicator_->rank() == 0; }
  /// Whether any rank wants to stop. Ranks also exchange how far their saves are.
  bool meet(const Watcher& watcher);
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
  CheckpointSaver saver_;
  std::map<std::string, std::string> failed_saves_;        ///< reason by name, of saves that no later one replaced
  std::pair<std::optional<double>, int64_t> best_before_;  ///< best loss and its step in the best checkpoint on disk
};

}  // namespace lamina::train
