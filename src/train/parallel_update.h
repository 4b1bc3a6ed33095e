#pragma once

#include <functional>
#include <map>
#include <memory>

#include "lamina/comm/communicator.h"
#include "lamina/data/batches.h"
#include "lamina/nn/model.h"
#include "lamina/train/chunk_gradients.h"
#include "lamina/train/divided_weights.h"
#include "lamina/train/evaluation.h"
#include "lamina/train/optimizer.h"
#include "lamina/train/pass.h"
#include "lamina/train/rank_groups.h"
#include "lamina/train/recipe.h"
#include "lamina/train/replicas.h"

namespace lamina::train {

/// The part of an update that a rank does: its micro-batches, sums over all ranks, and with ZeRO the update of its own
/// pieces. Ranks that hold parts of the model (tensor parallel, expert parallel, pipeline stages) update their shards.
/// The loss is the mean over the targets of all ranks, auxiliary losses are means over tokens, the norm counts every
/// element once, and dropout draws by the row's number in the whole batch, so a run does not depend on the number of
/// ranks. With `order: ordered` its bits do not either, if every rank has the whole model.
class ParallelUpdate {
 public:
  /// Parameters are watched by `tape` with wide gradients (accumulation_type). `divided`: divide_weights() of the
  /// model.
  ParallelUpdate(nn::Model& model, Tape& tape, const Recipe& recipe, const RankGroups& groups,
                 std::shared_ptr<DividedWeights> divided = nullptr);

  /// Ranks that share the batches of evaluations.
  EvaluationRanks evaluation_ranks() const;
  /// This rank's part of the model; null: it has all of it.
  ShardedWeights* sharded() { return sharded_.get(); }
  const ShardedWeights* sharded() const { return sharded_.get(); }  ///< see above
  /// The weights of ZeRO-3; null: they are always in memory.
  DividedWeights* divided() const { return divided_.get(); }
  /// The parameters as this rank keeps them: whole tensors, or with ZeRO-3 this rank's pieces.
  NamedTensors kept_parameters() const;
  /// A whole tensor with the shape of a parameter, of which every rank keeps what it keeps of the parameter. All ranks
  /// call it; `own` is undefined on a rank that keeps none.
  Tensor undivided(const std::string& parameter, const Tensor& own, DType dtype) const;
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

  /// State of the optimizer of a run on one device, gathered from all ranks; the tensors are copies. Every rank calls
  /// it; only rank 0 needs the result. Without ZeRO and divided models the optimizer's own state.
  NamedTensors whole_state(const Optimizer& optimizer) const;
  /// Pieces of whole tensors that this rank's `tensors` are. They have the names and shapes of parameters or of
  /// state_dict(); `prefix` precedes their names in checkpoints.
  HeldPieces held(const NamedTensors& tensors, const std::string& prefix) const;
  /// Pieces of whole tensors that `tensors` are; each is divided as the parameter of its name.
  HeldPieces held_as_parameters(const NamedTensors& tensors, const std::string& prefix) const;
  /// Pieces of whole tensors that `state` is: Optimizer::state() of this rank's optimizer.
  HeldPieces held_state(const NamedTensors& state, const std::string& prefix) const;

  /// Runs an update on a meta device. Returns the bytes that are live after the backward passes, gradients included.
  int64_t rehearse(const std::function<PassInput(int64_t rows)>& input);

 private:
  struct Pass;
  struct Place {
    size_t replicas = 0;   ///< index in replicas_
    size_t parameter = 0;  ///< index in its parameters()
  };
  Place place_of(const std::string& name) const;
  const Replicas& replicas_of(const Place& place) const { return *replicas_[place.replicas]; }
  /// Whether micro-batches are summed in a tree although chunks of other micro-batches run in between.
  bool sums_chunks() const { return !chunk_gradients_.empty(); }
  /// Runs forward and backward of `passes` through the pipeline.
  void run(std::vector<Pass>& passes);
  /// Backward of a chunk whose records are on the tape, with the reducers prepared.
  void run_backward(const Pass& pass, int chunk, const std::vector<Tensor>& outputs, const std::vector<Tensor>& grads);
  /// Exchanges the losses of micro-batches, and which parameters have gradients. Returns the mean loss.
  double sum_losses(const std::vector<double>& losses);
  std::vector<double> chunk_squares() const;
  /// Sum of squares of the elements that this rank counts, if ranks hold shards.
  double counted_squares() const;
  /// whole_state() of this rank's shards.
  NamedTensors undivided_state(const Optimizer& optimizer) const;
  int64_t most_rows() const;
  /// held_state() of tensors that belong to the parameter owner(name).
  HeldPieces held_pieces(const NamedTensors& tensors, const std::string& prefix,
                         const std::function<std::string(const std::string& name)>& owner) const;
  int model_copies() const;  ///< how many times the ranks hold the whole model
  int model_copy() const;    ///< the number of this rank's among them

  nn::Model& model_;
  Tape& tape_;
  const Recipe& recipe_;
  RankGroups groups_;
  std::shared_ptr<DividedWeights> divided_;
  std::unique_ptr<ShardedWeights> sharded_;
  std::vector<std::unique_ptr<Replicas>> replicas_;  ///< all parameters but experts; experts, if ranks divide them
  std::vector<ChunkGradients> chunk_gradients_;      ///< of each replicas_; empty: see sums_chunks()
  std::map<std::string, Place> places_;
  std::vector<RowRange> micro_batches_;
};

}  // namespace lamina::train
