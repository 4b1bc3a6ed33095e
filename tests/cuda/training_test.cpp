// Training on a GPU: the captured update against the CPU, with dropout, gradient accumulation, clipping and activation
// checkpointing, and its replay.
#include "cuda/on_gpu.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/train/learner.h"

namespace lamina::train {
namespace {

Recipe small_recipe() {
  Recipe recipe;
  recipe.architecture = arch::resolve(arch::load_preset("llama-tiny"), "llama-tiny");
  recipe.batch = 4;
  recipe.length = 16;
  recipe.steps = 12;
  recipe.accumulation = 2;
  recipe.optimizer = AdamWChoice{.lr = 3e-3};
  recipe.clip = 0.5;
  recipe.dropout = {0.1, 0.1, 0.1};
  recipe.ema = 0.9;
  return recipe;
}

data::Batch batch_at(const Recipe& recipe, int64_t pass) {
  data::Batch batch{.rows = recipe.batch, .length = recipe.length};
  for (int64_t i = 0; i < recipe.batch * recipe.length; ++i) {
    const auto word = philox_word({7, static_cast<uint64_t>(pass)}, static_cast<uint64_t>(i));
    batch.ids.push_back(static_cast<int64_t>(word) % recipe.architecture.vocab_size);
    batch.targets.push_back((batch.ids.back() + 1) % recipe.architecture.vocab_size);
  }
  return batch;
}

std::vector<StepResult> train(const Recipe& recipe, const Device& device, int64_t first = 0,
                              Learner* started = nullptr) {
  Learner fresh(recipe, device);
  Learner& learner = started == nullptr ? fresh : *started;
  std::vector<StepResult> results;
  for (int64_t step = first; step < recipe.steps; ++step) {
    results.push_back(learner.step(step, [&](int64_t pass) { return batch_at(recipe, pass); }));
  }
  return results;
}

using CudaTraining = testing::OnGpu<>;

TEST_F(CudaTraining, LossesFollowTheCpus) {
  Recipe recipe = small_recipe();
  const std::vector<StepResult> truth = train(recipe, Device::cpu(2));
  for (const bool again : {false, true}) {
    recipe.checkpointing = again;
    const std::vector<StepResult> ours = train(recipe, Device::cuda());
    for (size_t i = 0; i < truth.size(); ++i) {
      SCOPED_TRACE(str("update ", i, again ? ", activations computed again" : ""));
      EXPECT_NEAR(ours[i].loss, truth[i].loss, 1e-4 * truth[i].loss);
      EXPECT_NEAR(ours[i].grad_norm, truth[i].grad_norm, 1e-3 * truth[i].grad_norm);
      EXPECT_EQ(ours[i].lr, truth[i].lr);
    }
  }
}

TEST_F(CudaTraining, GoingOnHasTheBitsOfNotStopping) {
  Recipe recipe = small_recipe();
  recipe.dtype = Precision::bf16;
  const Device device = Device::cuda(0, /*deterministic=*/true);
  const std::vector<StepResult> whole = train(recipe, device);
  Learner first(recipe, device);
  for (int64_t step = 0; step < 5; ++step) first.step(step, [&](int64_t pass) { return batch_at(recipe, pass); });
  NamedTensors state = first.training_state();
  for (NamedTensor& entry : state) entry.tensor = entry.tensor.clone();
  Learner second(recipe, device);
  first.with_kept_weights([&](const nn::StateDict& kept) { second.load(kept, state); });
  const std::vector<StepResult> rest = train(recipe, device, 5, &second);
  for (size_t i = 0; i < rest.size(); ++i) {
    EXPECT_EQ(rest[i].loss, whole[i + 5].loss) << "update " << i + 5;
    EXPECT_EQ(rest[i].grad_norm, whole[i + 5].grad_norm) << "update " << i + 5;
  }
}

TEST_F(CudaTraining, WhatIsNotFiniteIsNamedAndChangesNothing) {
  Recipe recipe = small_recipe();
  recipe.ema = 0;
  Learner learner(recipe, Device::cuda());
  const auto give = [&](int64_t pass) { return batch_at(recipe, pass); };
  for (int64_t step = 0; step < 5; ++step) learner.step(step, give);
  Tensor weight = learner.model().state_dict().front().tensor;
  weight.slice(0, 1, 1).fill_(std::numeric_limits<double>::quiet_NaN());
  try {
    for (int64_t step = 5; step < 8; ++step) learner.step(step, give);
    FAIL() << "nothing was noticed";
  } catch (const NotFinite& error) {
    EXPECT_NE(std::string(error.what()).find("holds nan"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lamina::train
