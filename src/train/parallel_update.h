#pragma once

#include <functional>
#include <memory>

#include "lamina/comm/communicator.h"
#include "lamina/data/batches.h"
#include "lamina/nn/model.h"
#include "lamina/train/gradient_reducer.h"
#include "lamina/train/optimizer.h"
#include "lamina/train/recipe.h"

namespace lamina::train {

/// The part of an update that a data-parallel rank does: its micro-batches, sums over all ranks, and with ZeRO the
/// update of its own pieces. The loss is the mean over the targets of all ranks, the norm counts every element once,
/// and dropout draws by the row's number in the whole batch, so a run does not depend on the number of ranks. With
/// `order: ordered` its bits do not either.
class ParallelUpdate {
 public:
  /// `communicator` connects the data-parallel ranks. Parameters are watched by `tape` with wide gradients
  /// (accumulation_type).
  ParallelUpdate(nn::Model& model, Tape& tape, const Recipe& recipe, std::shared_ptr<comm::Communicator> communicator);

  comm::Communicator& communicator() { return *communicator_; }
  /// The recipe's optimizer of what this rank updates: all parameters, or with ZeRO its pieces.
  std::unique_ptr<Optimizer> make_optimizer() const;

  /// Runs the passes of update `step` on this rank's rows and sums gradients over all ranks. Returns the mean loss.
  /// `batch_at` gives whole batches.
  double run_passes(int64_t step, const std::function<data::Batch(int64_t pass)>& batch_at);
  /// Gradients for `optimizer`, in the order of its names().
  std::vector<Tensor> gradients(const Optimizer& optimizer) const;
  /// Norm of all gradients, the same on every rank.
  double norm() const;
  /// After the optimizer: every rank gets the pieces that others updated.
  void share_parameters();

  /// State of the whole optimizer, gathered from all ranks; the tensors are copies. Every rank calls it; only rank 0
  /// gets the result. Without ZeRO the optimizer's own state.
  NamedTensors whole_state(const Optimizer& optimizer) const;
  /// The part of a whole state that this rank's optimizer holds.
  NamedTensors own_state(const Optimizer& optimizer, const NamedTensors& whole) const;

  /// Rows of the largest micro-batch, for memory estimates.
  int64_t most_rows() const;
  /// Sums on a meta device: takes the gradients of a rehearsed pass from the tape.
  void rehearse_sums();

 private:
  bool divides_state() const { return recipe_.layout.zero > 0 && communicator_->size() > 1; }
  size_t index_of(const std::string& name) const;
  Tensor piece(size_t parameter) const;
  std::vector<double> chunk_squares() const;

  nn::Model& model_;
  Tape& tape_;
  const Recipe& recipe_;
  std::shared_ptr<comm::Communicator> communicator_;
  NamedTensors parameters_;
  ShardPlan plan_;
  std::vector<RowRange> micro_batches_;
  std::unique_ptr<GradientReducer> reducer_;
  std::vector<bool> any_defined_;  ///< parameters with a gradient on any rank, in the last update
};

}  // namespace lamina::train
