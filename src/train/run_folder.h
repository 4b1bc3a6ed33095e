#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lamina/io/piece_set.h"
#include "lamina/train/event_writer.h"
#include "lamina/train/learner.h"
#include "lamina/train/run_lock.h"

namespace lamina::train {

inline constexpr const char* kTrainingFile = "training.safetensors";  ///< training state in a checkpoint's folder

/// Progress of a run. Checkpoints store it next to the tensors.
struct Progress {
  int64_t step = 0;                         ///< completed updates
  double smoothed_loss = 0;                 ///< running mean over about 50 updates
  double loss = 0;                          ///< loss of the last update
  std::optional<double> validation_loss;    ///< last measured
  std::optional<double> best_loss;          ///< lowest validation loss
  int64_t best_step = 0;                    ///< step of best_loss
  std::optional<Accuracy> accuracy;         ///< tasks only, measured with validation_loss
  std::optional<double> longer_loss;        ///< loss on the task's longer examples
  std::optional<Accuracy> longer_accuracy;  ///< accuracy on the task's longer examples
  int64_t evaluated_step = 0;               ///< step of the last complete evaluation
  double seconds = 0;                       ///< training time, evaluations and checkpoints included
};

/// Evaluation results of a task under their log names: accuracy, accuracy_exact and, for longer examples, loss_long,
/// accuracy_long, accuracy_long_exact. Empty for text data.
Scalars accuracies(const Progress& progress);

/// Folder of a run:
///   recipe.json      the resolved recipe, which defines the run
///   tokenizer.json   if the tokenizer is known; tokenizer_config.json has its BOS and EOS tokens
///   data/            token files, if the run's data is a text
///   data.json        size, checksum and tokenizer of the run's token files (data_record.h)
///   log.jsonl        one line per logged update and per evaluation
///   events.out.…     the log in TensorBoard's format
///   last/, best/     checkpoints: a model's files, its tokenizer and state.json; last/ also training.safetensors. With
///                    several ranks: files of each rank and manifest.json (checkpoint_saver.h)
/// Files and checkpoints are written atomically. One job at a time can train in the folder (run_lock.h).
class RunFolder {
 public:
  /// Opens an existing run and deletes leftovers of killed processes. Takes the run's lock, unless `lock` already holds
  /// it.
  explicit RunFolder(const std::string& path, RunLock lock = {});
  /// Opens an existing run for reading, while another process may train it.
  static RunFolder reader(const std::string& path);

  const std::string& path() const { return path_; }  ///< as given
  std::string file(const std::string& name) const;   ///< path of a file in the folder
  Recipe recipe() const;                             ///< read from recipe.json

  /// Loads the last checkpoint, of any layout, into `learner`. Returns nothing if there is none yet. Ranks that load
  /// together divide the verification of checksums.
  std::optional<Progress> load_last(Learner& learner, const io::ChecksumShare& checksums = {}) const;
  /// Writes everything but the tensors of a checkpoint into the folder `checkpoint`: tokenizer and progress.
  void write_companions(const std::string& checkpoint, const Progress& progress) const;

 private:
  RunFolder() = default;
  std::string path_;
  RunLock lock_;
};

/// The most recently written run in `folder`, which may also be a run itself.
std::string newest_run(const std::string& folder);

}  // namespace lamina::train
