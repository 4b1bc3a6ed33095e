#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lamina/train/event_writer.h"
#include "lamina/train/learner.h"
#include "lamina/train/run_lock.h"

namespace lamina::train {

/// How far a run is; what a checkpoint holds besides tensors.
struct Progress {
  int64_t step = 0;  ///< updates made
  double smoothed_loss = 0;
  double loss = 0;                        ///< of the last update
  std::optional<double> validation_loss;  ///< the last one measured
  std::optional<double> best_loss;        ///< on the validation data
  int64_t best_step = 0;
  std::optional<Accuracy> accuracy;   ///< of a task, with validation_loss
  std::optional<double> longer_loss;  ///< of its longer examples
  std::optional<Accuracy> longer_accuracy;
  int64_t evaluated_step = 0;  ///< of the last evaluation that was not cut short
  double seconds = 0;          ///< spent training, evaluations and checkpoints included
};

/// What a task's evaluation found, as logs and checkpoints name it: accuracy, accuracy_exact, and for longer examples
/// loss_long, accuracy_long, accuracy_long_exact. Empty for a text.
Scalars accuracies(const Progress& progress);

/// The folder of a run:
///   recipe.json      resolved: everything the run is
///   tokenizer.json   if the tokenizer is known, with tokenizer_config.json (its first and last token)
///   data/            token files made from a text for this run
///   data.json        size, checksum and tokenizer of the run's token files (data_record.h)
///   log.jsonl        a line for every logged update and every evaluation
///   events.out.…     the same for TensorBoard
///   last/, best/     checkpoints: a model's files, its tokenizer and state.json; last/ also training.safetensors
/// Every file and checkpoint appears whole. One process at a time: the lock goes with the process, however it ends.
class RunFolder {
 public:
  /// Opens a folder that is a run, takes its lock unless `lock` is it, and removes what a killed process left.
  explicit RunFolder(const std::string& path, RunLock lock = {});

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const;
  Recipe recipe() const;

  /// The last checkpoint into `learner`; nothing where none was written yet.
  std::optional<Progress> load_last(Learner& learner) const;
  /// `with_state`: everything that going on needs, not the model alone.
  void save(const std::string& name, Learner& learner, const Progress& progress, bool with_state);

 private:
  std::string path_;
  RunLock lock_;
};

/// The run under `folder` (or `folder` itself) that was written to last.
std::string newest_run(const std::string& folder);

}  // namespace lamina::train
