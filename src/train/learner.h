#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "lamina/autograd/tape.h"
#include "lamina/io/piece_set.h"
#include "lamina/nn/model.h"
#include "lamina/ops/optim/grad_norm.h"
#include "lamina/train/device_update.h"
#include "lamina/train/ema.h"
#include "lamina/train/evaluation.h"
#include "lamina/train/optimizer.h"
#include "lamina/train/parallel_update.h"
#include "lamina/train/rank_groups.h"
#include "lamina/train/recipe.h"

namespace lamina::train {

/// Thrown if the loss or a gradient is NaN or infinite. Training cannot continue.
class NotFinite : public Error {
 public:
  using Error::Error;
};

// Prefixes of names in the training state.
inline constexpr const char* kOptimizerPrefix = "optimizer.";  ///< moments, master weights, update counts
inline constexpr const char* kAveragePrefix = "average.";      ///< EMA of the weights
inline constexpr const char* kWeightsPrefix = "weights.";      ///< current weights, if the kept weights are the EMA

/// Time of one update by phase, in seconds.
struct StepTimes {
  double data = 0;      ///< getting batches
  double forward = 0;   ///< forward passes
  double backward = 0;  ///< backward passes
  double update = 0;    ///< gradient norm, clipping, optimizer and EMA
  double device = 0;    ///< whole update, if the GPU runs it as one CUDA graph
  double total() const { return data + forward + backward + update + device; }  ///< sum of all phases
  /// Adds each phase.
  StepTimes& operator+=(const StepTimes& other) {
    data += other.data;
    forward += other.forward;
    backward += other.backward;
    update += other.update;
    device += other.device;
    return *this;
  }
};

/// Result of one update.
struct StepResult {
  double loss = 0;       ///< mean total loss over the update's passes, including auxiliary losses
  double grad_norm = 0;  ///< before clipping
  double lr = 0;         ///< learning rate of the first group (matrices in layers)
  StepTimes times;       ///< time per phase
};

/// Trains a model by a recipe: owns weights, gradients, optimizer and EMA. Does no file or terminal I/O. An update
/// depends only on the recipe, the current weights and state, the step number, and the batches.
class Learner {
 public:
  /// `recipe` must be resolved; its seed initialises the weights. `communicator` connects the ranks of the recipe's
  /// layout. A layout of one rank needs none, and on a meta device several ranks are simulated. All ranks must call the
  /// same functions.
  Learner(const Recipe& recipe, const Device& device, std::shared_ptr<comm::Communicator> communicator = nullptr);

  nn::Model& model() { return model_; }             ///< the model that is trained
  const Recipe& recipe() const { return recipe_; }  ///< resolved
  const Device& device() const { return device_; }  ///< where the model is trained

  /// Returns the batch of pass `pass`. Update s runs the passes s · accumulation … (s + 1) · accumulation − 1.
  using BatchAt = std::function<data::Batch(int64_t pass)>;
  /// Runs update number `step` (from 0). If the loss or a gradient is not finite, throws NotFinite before it changes
  /// anything.
  StepResult step(int64_t step, const BatchAt& batch_at);
  /// Runs an update on a meta device, which only counts memory. Returns the bytes in use after the backward passes,
  /// including gradients.
  int64_t rehearse_update();
  /// The parameters that this rank keeps: the model's tensors or, with ZeRO-3, this rank's pieces of them.
  NamedTensors kept_parameters() const;
  /// Runs an evaluation on a meta device, if the recipe has evaluations.
  void rehearse_evaluation();

  /// Evaluates the kept weights on all of `data`. The kept weights are the EMA if there is one, otherwise the
  /// parameters. `stop` is polled between batches; if it returns true, the result is empty. Several ranks divide the
  /// batches, all get the same result, and they do not stop early.
  std::optional<Measured> evaluate(const EvaluationData& data, const std::function<bool()>& stop = {});

  /// Calls `use` with the kept weights of the whole model, under their checkpoint names. All ranks must call it. The
  /// tensors are not copies, unless tensor-parallel ranks have to gather them.
  void with_kept_weights(const std::function<void(const nn::StateDict&)>& use);
  /// Loads weights from a checkpoint with the same shapes, converted to the model's dtype. Also initialises the
  /// optimizer's master weights and the EMA from them.
  void load_weights(const nn::StateDict& weights);

  /// The state that a bit-identical resume needs in addition to the kept weights. With several ranks, all must call it;
  /// rank 0 gets the state of the whole run, in the form of a single-device run.
  NamedTensors training_state() const;
  /// Restores the kept weights, and the state returned by training_state().
  void load(const nn::StateDict& kept_weights, const NamedTensors& state);

  /// Calls `use` with this rank's pieces of the kept weights, under their checkpoint names. With an EMA, the pieces
  /// alias weights that hold the average only during the call. So copy them, and do not call training_pieces() inside.
  void with_kept_pieces(const std::function<void(const HeldPieces&)>& use);
  /// This rank's pieces of the state that a bit-identical resume needs in addition to the kept weights. Except for
  /// update counts, they alias the live state.
  HeldPieces training_pieces() const;
  /// Restores both from a checkpoint of any layout. Each element is copied once, directly from the file.
  void load(const io::PieceSet& kept_weights, const io::PieceSet& state);
  void load_weights(const io::PieceSet& weights);  ///< load_weights() from pieces

 private:
  /// Runs the passes of update `step`; returns their mean loss and times. Skips backward of a pass whose loss is not
  /// finite.
  StepResult host_passes(int64_t step, const BatchAt& batch_at);
  StepResult host_step(int64_t step, const BatchAt& batch_at);
  StepResult device_step(int64_t step, const BatchAt& batch_at);
  StepResult parallel_step(int64_t step, const BatchAt& batch_at);
  StepResult update_from(int64_t step, StepResult result, const std::vector<Tensor>& grads, const ops::GradNorm& norm);
  std::vector<data::Batch> take_batches(int64_t step, const BatchAt& batch_at);
  [[noreturn]] void explain_not_finite(int64_t step, const std::vector<data::Batch>& batches);
  void check_finite(int64_t step, double loss, const std::vector<Tensor>& grads, bool bad_gradient) const;
  void start_optimizer();
  HeldPieces kept_pieces() const;
  /// The pieces of `optimizer_state`, which is optimizer_->state(), and of the EMA.
  HeldPieces pieces_of(const NamedTensors& optimizer_state) const;
  void add_average(NamedTensors& state) const;
  /// add_average() for the whole model, gathered from tensor-parallel ranks.
  void add_whole_average(NamedTensors& state) const;
  /// The shards of ranks that hold the model together. Null: this rank has the whole model.
  const ShardedWeights* sharded() const { return parallel_ ? parallel_->sharded() : nullptr; }

  Recipe recipe_;
  Device device_;
  RankGroups groups_;
  nn::ModelOptions options_;
  std::shared_ptr<DividedWeights> divided_;  ///< null unless ZeRO-3 divides the weights
  nn::Model model_;
  Tape tape_;
  std::unique_ptr<ParallelUpdate> parallel_;  ///< null on the single-device path
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<double> rates_;
  std::unique_ptr<Ema> ema_;
  std::unique_ptr<DeviceUpdate> device_update_;
  /// Batches of the next update, prefetched while the GPU runs the current one.
  struct Ahead {
    int64_t step = -1;
    std::vector<data::Batch> batches;
  };
  Ahead ahead_;
};

}  // namespace lamina::train
