#pragma once

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lamina/base/files.h"
#include "lamina/train/run_folder.h"

namespace lamina::train {

/// A save that has ended.
struct FinishedSave {
  std::string name;   ///< last or best
  Progress progress;  ///< progress at the time of the copy
  std::string error;  ///< why the save failed; empty if it succeeded. After a failure the old checkpoint stays
  double seconds;     ///< time from the copy to the publication
};

/// Writes checkpoints of a run while training continues. A save copies this rank's pieces to host memory, and a thread
/// writes them. Only one save is in flight at a time.
///
/// A single rank writes model.safetensors and training.safetensors. With several ranks, each writes the pieces it owns
/// to model-RANK-of-RANKS.safetensors and training-….safetensors in a common temporary folder. When all ranks have
/// reported success, rank 0 checks that the pieces cover every tensor, writes the manifest and renames the folder.
/// Until then the old checkpoint stays.
///
/// The reports are part of a collective that every update needs anyway (status(), advance()), because only one thread
/// may use a communicator.
class CheckpointSaver {
 public:
  /// All arguments must outlive this object. `communicator` is null if there is only one process. Without `background`
  /// nothing is copied, so the caller must finish() a save before the next update.
  CheckpointSaver(const RunFolder& folder, Learner& learner, comm::Communicator* communicator, bool background);
  /// Waits for this rank's thread. With several ranks, a save that has not ended in advance() or finish() is lost.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Starts a save; none may be in flight. `with_state` includes the state that a resume needs. All ranks must call it.
  void start(const std::string& name, const Progress& progress, bool with_state);
  /// Name of the save in flight; empty if there is none.
  std::string in_flight() const { return save_ ? save_->name : ""; }

  /// The state of this rank's save. The caller sends it to all ranks after an update.
  double status();
  /// Takes the statuses of all ranks, in rank order. Returns the save if it has ended.
  std::optional<FinishedSave> advance(const std::vector<double>& statuses);
  /// Waits until the save in flight has ended, if there is one. All ranks must call it.
  std::optional<FinishedSave> finish();

 private:
  /// Result of a job of the writing thread.
  struct Written {
    std::string error;
    io::WrittenFile model;
    io::WrittenFile training;
  };
  struct Save {
    std::string name;
    Progress progress;
    bool with_state = false;
    bool publishing = false;  ///< all ranks have written, and rank 0 publishes
    double started = 0;
    std::vector<io::TensorPiece> model;
    std::vector<io::TensorPiece> training;
    std::unique_ptr<NewFolder> folder;  ///< exists on rank 0
    std::string place;                  ///< path of the temporary folder
    std::future<Written> job;           ///< invalid if this rank has no running job
    Written written;                    ///< result of the last job
    std::vector<double> files;          ///< sizes and checksums of all ranks' files
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
  std::map<std::string, io::ShardGroup> whole_;  ///< all tensors of the run; used on rank 0 of several
};

}  // namespace lamina::train
