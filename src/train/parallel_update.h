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

/// The part of an update that one rank computes: its micro-batches, gradient sums over all ranks, and the optimizer
/// update of its own pieces (ZeRO). Ranks that hold parts of the model (tensor parallelism, expert parallelism,
/// pipeline stages) update their shards.
///
/// The result does not depend on the number of ranks. The loss is the mean over the targets of all ranks; auxiliary
/// losses are means over tokens. The norm counts every element once. Dropout depends on a row's index in the whole
/// batch. With `order: ordered`, it is even bit-identical, if every rank has the whole model.
class ParallelUpdate {
 public:
  /// `tape` must watch the parameters with wide gradients (accumulation_type). `divided` is the result of
  /// divide_weights() for this model.
  ParallelUpdate(nn::Model& model, Tape& tape, const Recipe& recipe, const RankGroups& groups,
                 std::shared_ptr<DividedWeights> divided = nullptr);

  /// The ranks that share the batches of evaluations.
  EvaluationRanks evaluation_ranks() const;
  /// This rank's part of the model. Null: it has the whole model.
  ShardedWeights* sharded() { return sharded_.get(); }
  const ShardedWeights* sharded() const { return sharded_.get(); }  ///< see above
  /// The divided weights of ZeRO-3. Null: weights are always in memory.
  DividedWeights* divided() const { return divided_.get(); }
  /// The parameters that this rank keeps: whole tensors or, with ZeRO-3, this rank's pieces.
  NamedTensors kept_parameters() const;
  /// Gathers a whole tensor with the shape of a parameter, if every rank keeps the same part of it as of the parameter.
  /// All ranks must call it. `own` is undefined on a rank that keeps nothing.
  Tensor undivided(const std::string& parameter, const Tensor& own, DType dtype) const;
  /// The recipe's optimizer for what this rank updates: all parameters or, with ZeRO, its pieces.
  std::unique_ptr<Optimizer> make_optimizer() const;

  /// Runs the passes of update `step` on this rank's rows, and sums gradients over all ranks. Returns the mean loss.
  /// `batch_at` must return whole batches.
  double run_passes(int64_t step, const std::function<data::Batch(int64_t pass)>& batch_at);
  /// The gradients for `optimizer`, in the order of its names().
  std::vector<Tensor> gradients(const Optimizer& optimizer) const;
  /// The norm of all gradients; equal on every rank.
  double norm() const;
  /// Call after the optimizer: sends every rank the pieces that other ranks updated.
  void share_parameters();

  /// The optimizer state of a single-device run, gathered from all ranks as copies. Every rank must call it; only rank
  /// 0 needs the result. Without ZeRO and without a divided model, it is the optimizer's own state.
  NamedTensors whole_state(const Optimizer& optimizer) const;
  /// This rank's `tensors` as pieces of whole tensors. They have the names and shapes of parameters or of state_dict().
  /// `prefix` is added to their names in checkpoints.
  HeldPieces held(const NamedTensors& tensors, const std::string& prefix) const;
  /// `tensors` as pieces of whole tensors. Each is divided like the parameter of the same name.
  HeldPieces held_as_parameters(const NamedTensors& tensors, const std::string& prefix) const;
  /// `state` as pieces of whole tensors. It must be Optimizer::state() of this rank's optimizer.
  HeldPieces held_state(const NamedTensors& state, const std::string& prefix) const;

  /// Runs an update on a meta device. Returns the bytes in use after the backward passes, including gradients.
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
  /// Backward of a chunk whose records are on the tape. Prepares the reducers first.
  void run_backward(const Pass& pass, int chunk, const std::vector<Tensor>& outputs, const std::vector<Tensor>& grads);
  /// Exchanges the losses of micro-batches, and which parameters have gradients. Returns the mean loss.
  double sum_losses(const std::vector<double>& losses);
  std::vector<double> chunk_squares() const;
  /// If ranks hold shards: the sum of squares of the elements that this rank counts.
  double counted_squares() const;
  /// whole_state() for this rank's shards.
  NamedTensors undivided_state(const Optimizer& optimizer) const;
  int64_t most_rows() const;
  /// held_state() for tensors that belong to the parameter owner(name).
  HeldPieces held_pieces(const NamedTensors& tensors, const std::string& prefix,
                         const std::function<std::string(const std::string& name)>& owner) const;
  int model_copies() const;  ///< number of copies of the whole model among the ranks
  int model_copy() const;    ///< index of the copy that this rank belongs to

  nn::Model& model_;
  Tape& tape_;
  const Recipe& recipe_;
  RankGroups groups_;
  std::shared_ptr<DividedWeights> divided_;
  std::unique_ptr<ShardedWeights> sharded_;
  /// All parameters except experts; and experts, if ranks divide them.
  std::vector<std::unique_ptr<Replicas>> replicas_;
  std::vector<ChunkGradients> chunk_gradients_;  ///< one per element of replicas_; empty: see sums_chunks()
  std::map<std::string, Place> places_;
  std::vector<RowRange> micro_batches_;
};

}  // namespace lamina::train
