#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "lamina/autograd/tape.h"
#include "lamina/nn/model.h"
#include "lamina/train/device_update.h"
#include "lamina/train/ema.h"
#include "lamina/train/evaluation.h"
#include "lamina/train/optimizer.h"
#include "lamina/train/recipe.h"

namespace lamina::train {

/// A number that is not finite turned up: training cannot go on from here.
class NotFinite : public Error {
 public:
  using Error::Error;
};

/// Where the time of an update went, in seconds.
struct StepTimes {
  double data = 0;
  double forward = 0;
  double backward = 0;
  double update = 0;  ///< norm, clipping, optimizer, average
  double device = 0;  ///< all of these where a GPU makes them as one piece
  double total() const { return data + forward + backward + update + device; }
  StepTimes& operator+=(const StepTimes& other) {
    data += other.data;
    forward += other.forward;
    backward += other.backward;
    update += other.update;
    device += other.device;
    return *this;
  }
};

/// What one update did.
struct StepResult {
  double loss = 0;       ///< mean over the update's passes, everything that was minimised included
  double grad_norm = 0;  ///< before clipping
  double lr = 0;         ///< of the first group, the layers' matrices
  StepTimes times;
};

/// A model that learns as a recipe says: weights, gradients, optimizer and average, and nothing of files or screens.
/// What an update does depends on the recipe, the weights and state before it, its number and its batches alone.
class Learner {
 public:
  /// `recipe` is resolved. Weights are drawn from its seed.
  Learner(const Recipe& recipe, const Device& device);

  nn::Model& model() { return model_; }
  const Recipe& recipe() const { return recipe_; }
  const Device& device() const { return device_; }

  /// Gives the batch of pass `pass`: update s makes the passes s · accumulation, …
  using BatchAt = std::function<data::Batch(int64_t pass)>;
  /// Update number `step`, from 0. Throws NotFinite, before anything is changed, where the loss or a gradient is not a
  /// finite number.
  StepResult step(int64_t step, const BatchAt& batch_at);
  /// On a meta device, whose allocator counts: goes through an update and gives the bytes that live behind its passes,
  /// gradients among them.
  int64_t rehearse_update();
  /// The same with an evaluation, where the recipe has such.
  void rehearse_evaluation();

  /// How well the weights that are kept do on all of `data`: the average where there is one. `stop`, asked between
  /// passes, ends it early with nothing.
  std::optional<Measured> evaluate(const EvaluationData& data, const std::function<bool()>& stop = {});

  /// The weights that are kept, as checkpoints name them, handed to `use`; the tensors are the model's own.
  void with_kept_weights(const std::function<void(const nn::StateDict&)>& use);
  /// Values for the model, converted to its type, from a checkpoint of the same shapes; the optimizer's copies and the
  /// average start from them.
  void load_weights(const nn::StateDict& weights);

  /// Everything besides the kept weights that going on to the bit needs.
  std::vector<NamedTensor> training_state() const;
  /// The kept weights and that state, as they were written.
  void load(const nn::StateDict& kept_weights, const std::vector<NamedTensor>& state);

 private:
  struct PassResult {
    double loss;
    StepTimes times;
  };
  PassResult pass(int64_t index, const BatchAt& batch_at);
  StepResult host_step(int64_t step, const BatchAt& batch_at);
  StepResult device_step(int64_t step, const BatchAt& batch_at);
  std::vector<data::Batch> take_batches(int64_t step, const BatchAt& batch_at);
  [[noreturn]] void explain_not_finite(int64_t step, const std::vector<data::Batch>& batches);
  void check_finite(int64_t step, double loss, const std::vector<Tensor>& grads, bool bad_gradient) const;
  void start_optimizer();

  Recipe recipe_;
  Device device_;
  nn::Model model_;
  Tape tape_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<double> rates_;
  std::unique_ptr<Ema> ema_;
  std::unique_ptr<DeviceUpdate> device_update_;
  /// The batches of the update that comes next, drawn while the GPU was at the one before.
  struct Ahead {
    int64_t step = -1;
    std::vector<data::Batch> batches;
  };
  Ahead ahead_;
};

}  // namespace lamina::train
