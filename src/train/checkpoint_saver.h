#pragma once

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lamina/base/files.h"
#include "lamina/train/run_folder.h"

namespace lamina::train {

/// A save that ended.
struct FinishedSave {
  std::string name;   ///< last or best
  Progress progress;  ///< as saved
  std::string error;  ///< why nothing was saved; empty if it was. The checkpoint of that name is then the old one
  double seconds;     ///< from the copy to the publication
};

/// Writes checkpoints of a run while training goes on. A save copies this rank's pieces to host memory; one thread
/// writes them. One save is in flight at a time.
///
/// One rank writes model.safetensors and training.safetensors. With several ranks, each writes the pieces that it owns
/// to model-RANK-of-RANKS.safetensors and training-….safetensors in one temporary folder. When all have reported
/// success, rank 0 checks that the pieces cover every tensor, writes the manifest and renames the folder. Until then
/// the old checkpoint stays. Reports travel with a collective that every update has anyway (status(), advance()),
/// because a communicator belongs to one thread.
class CheckpointSaver {
 public:
  /// All arguments must outlive this. `communicator` is null for one process. Without `background` there is no copy:
  /// the caller must finish() a save before the next update.
  CheckpointSaver(const RunFolder& folder, Learner& learner, comm::Communicator* communicator, bool background);
  /// Waits for this rank's thread. With several ranks, a save that did not end in advance() or finish() is lost.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Begins a save; none may be in flight. `with_state` adds what a resume needs. All ranks call it.
  void start(const std::string& name, const Progress& progress, bool with_state);
  /// Name of the save in flight; empty if there is none.
  std::string in_flight() const { return save_ ? save_->name : ""; }

  /// The state of this rank's save, which it reports to all ranks after an update.
  double status();
  /// Takes the statuses of all ranks, in rank order. Returns the save if this ended it.
  std::optional<FinishedSave> advance(const std::vector<double>& statuses);
  /// Waits until the save in flight has ended, if there is one. All ranks call it.
  std::optional<FinishedSave> finish();

 private:
  /// Result of a job in the thread.
  struct Written {
    std::string error;
    io::WrittenFile model;
    io::WrittenFile training;
  };
  struct Save {
    std::string name;
    Progress progress;
    bool with_state = false;
    bool publishing = false;  ///< all ranks have written; rank 0 publishes
    double started = 0;
    std::vector<io::TensorPiece> model;
    std::vector<io::TensorPiece> training;
    std::unique_ptr<NewFolder> folder;  ///< on rank 0
    std::string place;                  ///< path of the temporary folder
    std::future<Written> job;           ///< invalid if this rank has none now
    Written written;                    ///< result of the last job
    std::vector<double> files;          ///< sizes and checksums of all ranks
  };
  bool writes() const { return communicator_ == nullptr || communicator_->rank() == 0; }
  int ranks() const { return communicator_ == nullptr ? 1 : communicator_->size(); }
  void open_folder();
  void take_pieces();
  void collect(bool wait);
  Written write_files() const;
  Written publish();
  io::Manifest manifest() const;
  FinishedSave ended(const std::string& error);

  const RunFolder& folder_;
  Learner& learner_;
  comm::Communicator* communicator_;
  bool background_;
  std::unique_ptr<Save> save_;
  std::map<std::string, io::ShardGroup> whole_;  ///< all tensors of the run, on rank 0 of several
};

}  // namespace lamina::train
