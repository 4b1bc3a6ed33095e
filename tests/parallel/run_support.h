#pragma once

#include "lamina/train/parameter_groups.h"
#include "lamina/train/pass.h"
#include "parallel/parallel_support.h"

namespace lamina::testing {

using Weights = std::map<std::string, std::vector<double>>;

/// Weights in f64 after five updates, without any of the code under test.
inline Weights single_device_weights(const train::Recipe& recipe) {
  nn::Model model(recipe.architecture, Device::cpu(1), {.dtype = DType::f64, .seed = 3});
  Tape tape;
  watch_all(model, tape);
  const auto optimizer = train::make_optimizer(model, recipe);
  for (int64_t step = 0; step < 5; ++step) {
    train::run_passes(model, tape, recipe, recipe.accumulation, [&](int64_t i) {
      const int64_t pass = step * recipe.accumulation + i;
      const data::Batch batch = batch_of(recipe, pass);
      return train::pass_input(batch, 0, batch.rows, model.device(), static_cast<uint64_t>(pass));
    });
    const std::vector<Tensor> grads = optimizer->gradients(tape);
    ops::clip_grad_norm_(grads, {.max_norm = recipe.clip, .names = {}});
    optimizer->step(grads);
  }
  Weights weights;
  for (const auto& [name, tensor] : model.state_dict()) weights[name] = tensor.to_vector<double>();
  return weights;
}

/// The weights of five updates on the ranks of `recipe.layout`.
inline Weights weights_on_ranks(const train::Recipe& recipe, comm::Communicator& c) {
  const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
  const train::RankGroups groups = train::rank_groups(recipe.layout, Device::cpu(1), own);
  nn::ModelOptions options = groups.model_options(DType::f64, 3);
  const auto divided = train::divide_weights(recipe, groups, options);
  nn::Model model(recipe.architecture, Device::cpu(1), options);
  Tape tape;
  watch_all(model, tape);
  train::ParallelUpdate update(model, tape, recipe, groups, divided);
  const auto optimizer = update.make_optimizer();
  for (int64_t step = 0; step < 5; ++step) {
    update.run_passes(step, [&](int64_t pass) { return batch_of(recipe, pass); });
    const std::vector<Tensor> grads = update.gradients(*optimizer);
    const double factor = recipe.clip / (update.norm() + 1e-6);
    if (factor < 1) ops::scale_(grads, factor);
    optimizer->step(grads);
    update.share_parameters();
  }
  const train::DividedWeights::Use all(divided.get(), /*all=*/true);
  const nn::StateDict held = model.state_dict();
  Weights weights;
  if (update.sharded() == nullptr) {
    for (const auto& [name, tensor] : held) weights[name] = tensor.to_vector<double>();
    return weights;
  }
  for (const NamedTensor& entry : update.sharded()->whole_model().state_dict()) {
    const Tensor whole = update.sharded()->gather_from(held, entry.name, entry.name, DType::f64);
    weights[entry.name] = whole.to_vector<double>();
  }
  return weights;
}

/// Compares the weights of five updates on the ranks of `recipe.layout` with those of one device.
inline void expect_weights(const train::Recipe& recipe, const Weights& expected, const std::string& what,
                           double tolerance = 1e-12) {
  comm::run_local_ranks(static_cast<int>(recipe.layout.ranks()), [&](comm::Communicator& c) {
    const Weights got = weights_on_ranks(recipe, c);
    for (const auto& [name, values] : expected) {
      EXPECT_LE(largest_error(got.at(name), values), tolerance) << what << ": " << name;
    }
  });
}

/// Kept weights and training state of a run.
struct Checkpoint {
  nn::StateDict weights;
  NamedTensors state;
};

inline Checkpoint copy_of(train::Learner& learner) {
  Checkpoint checkpoint;
  for (const NamedTensor& entry : learner.training_state())
    checkpoint.state.push_back({entry.name, entry.tensor.clone()});
  learner.with_kept_weights([&](const nn::StateDict& kept) {
    for (const auto& [name, tensor] : kept) checkpoint.weights.push_back({name, tensor.detach().clone()});
  });
  return checkpoint;
}

/// Loads a checkpoint with another layout, if given, runs `updates`, and returns the checkpoint of rank 0.
inline Checkpoint through(const std::vector<std::string>& changes, const Checkpoint* start, int64_t updates) {
  const train::Recipe recipe = small_recipe(changes);
  Checkpoint result;
  comm::run_local_ranks(static_cast<int>(recipe.layout.ranks()), [&](comm::Communicator& c) {
    const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
    train::Learner learner(recipe, Device::cpu(1), own);
    if (start != nullptr) learner.load(start->weights, start->state);
    for (int64_t step = 0; step < updates; ++step) {
      learner.step(step, [&](int64_t pass) { return batch_of(recipe, pass); });
    }
    Checkpoint copy = copy_of(learner);
    if (c.rank() == 0) result = std::move(copy);
  });
  return result;
}

inline std::string bytes_of(const NamedTensors& tensors) {
  std::string bytes;
  for (const auto& [name, tensor] : tensors) {
    bytes += str(name, " ", tensor.shape(), " ", tensor.dtype(), ":");
    const Tensor dense = tensor.contiguous();
    bytes.append(static_cast<const char*>(dense.raw()), static_cast<size_t>(dense.nbytes()));
  }
  return bytes;
}

}  // namespace lamina::testing
