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
  const Progress& progress;  ///< progress after this update
  const StepResult& result;  ///< loss, gradient norm and times
  double tokens_per_second;  ///< running mean
  double flops_per_second;   ///< counts three forward passes per update
  double seconds_left;       ///< estimate at the current speed, without evaluations
  bool logged;               ///< whether a log line was written
};

/// Passed to on_evaluation after every evaluation.
struct EvaluationReport {
  const Progress& progress;  ///< progress, including the new losses
  bool improved;             ///< whether this is the lowest validation loss so far
  double seconds;            ///< duration of the evaluation
};

/// Passed to on_save when a checkpoint is complete, which may be some updates after the one it contains.
struct SaveReport {
  const Progress& progress;  ///< progress stored in the checkpoint
  std::string folder;        ///< folder of the checkpoint
  double seconds;            ///< from the copy of the state to the complete checkpoint
};

/// Passed to on_save_failed. The run continues, and the next save tries again.
struct SaveFailure {
  const Progress& progress;  ///< progress that should have been saved
  std::string folder;        ///< still holds the previous checkpoint, if there was one
  std::string reason;        ///< what failed, and what to do
};

/// Callbacks of a run; each may be empty.
struct Watcher {
  std::function<void(const UpdateReport&)> on_update;          ///< after every update
  std::function<void(const EvaluationReport&)> on_evaluation;  ///< after every evaluation
  std::function<void(const SaveReport&)> on_save;              ///< after every checkpoint
  /// Polled after every update and between evaluation batches. Returning true saves a checkpoint and ends the run.
  std::function<bool()> stop;
  std::function<void(const SaveFailure&)> on_save_failed = {};  ///< after every save that failed
};

/// Reason why run() returned.
enum class Outcome { finished, stopped };

/// Time spent by this process per activity, in seconds.
struct TimeSpent {
  StepTimes steps;         ///< updates, by phase
  double evaluations = 0;  ///< all evaluations
  double checkpoints = 0;  ///< copying states and waiting for saves; not the time of the writing thread
  double logging = 0;      ///< writing logs and running callbacks
  double all = 0;          ///< total since run() was called
};

/// Options of a Trainer.
struct TrainerOptions {
  RunLock lock;                  ///< lock of a newly started run; otherwise the trainer takes it
  bool accept_new_data = false;  ///< resume even if the token files changed (data_record.h)
  CheckProgress checking;        ///< called during the check of the token files at the start
  /// Connects the ranks of the run's layout, if there are several. All ranks must see the same files. Rank 0 writes
  /// logs; every rank writes its pieces of checkpoints.
  std::shared_ptr<comm::Communicator> communicator = nullptr;
};

/// Trains the run in a folder to its end, from its last checkpoint or from the start. Writes logs and checkpoints to
/// the folder. A run that is stopped or killed at any point resumes bit-identically.
class Trainer {
 public:
  /// Opens the run and loads its last checkpoint, if there is one.
  Trainer(const std::string& run_folder, const Device& device, TrainerOptions options = {});

  const Recipe& recipe() const { return learner_.recipe(); }  ///< resolved
  const Progress& progress() const { return progress_; }      ///< progress so far
  const TimeSpent& time_spent() const { return spent_; }      ///< by this process only
  Learner& learner() { return learner_; }                     ///< model and optimizer
  const Device& device() const { return learner_.device(); }  ///< where it trains
  const RunData& data() const { return data_; }               ///< data of the run

  /// Trains until the recipe's last update, or until watcher.stop returns true. Checkpoints are written in the
  /// background. A failed save is reported and repeated later; if the last one failed, run() throws an Error.
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
  /// Exchanges between all ranks whether one wants to stop, and the states of their saves. Returns whether any wants to
  /// stop.
  bool meet(const Watcher& watcher);
  bool evaluation_due() const;

  std::shared_ptr<comm::Communicator> communicator_;
  RunFolder folder_;
  Learner learner_;
  double flops_per_token_;  ///< for each token of an update
  RunData data_;
  Progress progress_;
  TimeSpent spent_;
  bool began_ = false;               ///< whether this process has completed an update
  double update_seconds_ = 0;        ///< running mean
  std::function<double()> elapsed_;  ///< returns the seconds of the whole run so far
  std::unique_ptr<LogFile> log_;
  std::unique_ptr<EventWriter> events_;
  CheckpointSaver saver_;
  /// Name → reason, for failed saves that no later save replaced.
  std::map<std::string, std::string> failed_saves_;
  std::pair<std::optional<double>, int64_t> best_before_;  ///< loss and step of the best checkpoint on disk
};

}  // namespace lamina::train
