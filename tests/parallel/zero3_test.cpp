// ZeRO-3 against one device: loss, norm and every named gradient in f64, five updates, random architectures and
// layouts, memory of a rank, traffic, released memory of tensors. data_parallel_test and sharded_checkpoint_test cover
// its bit-identity, evaluation and checkpoints.
#include "lamina/arch/resolve.h"
#include "lamina/autograd/tape.h"
#include "lamina/comm/fake.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "parallel/first_update.h"
#include "parallel/random_architecture.h"
#include "parallel/run_support.h"

namespace lamina::testing {
namespace {

std::vector<std::string> with(std::vector<std::string> changes, const std::vector<std::string>& more) {
  changes.insert(changes.end(), more.begin(), more.end());
  return changes;
}

std::vector<std::string> zero3(int dp) { return {str("layout.dp=", dp), "layout.zero=3"}; }

TEST(Zero3, LossNormAndEveryGradientEqualOneDeviceInF64) {
  for (const std::vector<std::string>& changes : std::vector<std::vector<std::string>>{
           {"architecture=llama-tiny"},
           {"architecture=gpt2-tiny", "layout.micro_batch=2", "accumulation=1"},  // tied embeddings
           {"architecture=gpt2-tiny", "checkpointing=true", "accumulation=3"},
           {"architecture=mamba2-tiny", "layout.order=ordered"},
           {"architecture=gemma-2-tiny", "dropout.residual=0.2", "dropout.embedding=0.1", "checkpointing=true"},
           {"architecture=qwen3-tiny", "optimizer.kind=muon", "layout.micro_batch=1", "batch=8"}}) {
    const First expected = single_device(small_recipe(changes));
    for (const int dp : {2, 4, 8}) {
      compare(small_recipe(with(changes, zero3(dp))), expected, str(changes[0], " dp ", dp));
    }
  }
}

TEST(Zero3, DividedModelsEqualOneDeviceInF64) {
  const std::vector<std::string> changes{"architecture=gpt2-tiny", "architecture.layers[0].repeat=3", "batch=8"};
  const First expected = single_device(small_recipe(changes));
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{"layout.tp=2"},
                                             {"layout.cp=2"},
                                             {"layout.tp=2", "layout.sequence=true"},
                                             {"layout.pp=3", "layout.micro_batch=1"}}) {
    compare(small_recipe(with(with(changes, zero3(2)), more)), expected, more[0]);
  }
  const std::vector<std::string> experts{"architecture=mixtral-tiny",
                                         "architecture.layers[0].pattern[0].ffn.balance_loss=0.1"};
  compare(small_recipe(with(with(experts, zero3(4)), {"layout.ep=2"})), single_device(small_recipe(experts)), "ep");
  compare(small_recipe(with(with(experts, zero3(4)), {"layout.ep=4"})), single_device(small_recipe(experts)), "ep 4");
}

TEST(Zero3, RandomArchitecturesAndLayoutsHaveTheGradientsOfOneDevice) {
  int compared = 0;
  for (uint64_t seed = 5000; compared < 24 && seed < 5400; ++seed) {
    Draw draw(seed);
    const int tp = static_cast<int>(1 + draw.below(2));
    train::Recipe recipe = small_recipe({"batch=8", "length=7", "dropout.residual=0.1"});
    try {
      recipe.architecture = arch::resolve(random_architecture(draw, tp), "random");
    } catch (const arch::SpecError&) {
      continue;  // a combination that no model has
    }
    if (has_experts(recipe.architecture)) continue;  // their balancing loss depends on dp
    if (!arch::tensor_parallel_problems(recipe.architecture, tp).empty()) continue;
    ++compared;
    const First expected = single_device(recipe);
    recipe.layout.zero = 3;
    recipe.layout.dp = 2 + draw.below(3);
    recipe.layout.tp = tp;
    recipe.layout.pp = 1 + draw.below(2);
    recipe.layout.micro_batch = 2 + draw.below(3);
    recipe.layout.sequence = tp > 1 && draw.coin();
    recipe.checkpointing = draw.coin();
    if (!recipe.checkpointing && draw.coin()) recipe.layout.recompute = train::Recompute::selective;
    compare(recipe, expected, str("seed ", seed, " dp ", recipe.layout.dp, " tp ", tp, " pp ", recipe.layout.pp));
  }
  EXPECT_EQ(compared, 24);
}

TEST(Zero3, WeightsAfterFiveUpdatesEqualOneDeviceInF64) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    const std::vector<std::string> changes{"architecture=gpt2-tiny", str("optimizer.kind=", optimizer),
                                           "dropout.residual=0.1"};
    const Weights expected = single_device_weights(small_recipe(changes));
    // AdamW divides by the square root of v, which amplifies the rounding of small gradients.
    const double tolerance = std::string(optimizer) == "sgd" ? 1e-12 : 1e-8;
    for (const int dp : {2, 4, 8}) {
      expect_weights(small_recipe(with(with(changes, zero3(dp)), {"layout.micro_batch=1", "batch=8"})),
                     single_device_weights(small_recipe(with(changes, {"batch=8"}))), str(optimizer, " dp ", dp),
                     tolerance);
    }
    expect_weights(small_recipe(with(with(changes, zero3(2)), {"layout.tp=2"})), expected, optimizer, tolerance);
  }
}

/// Bytes of the parameters of a model that `select` chooses by name.
int64_t bytes_of_parameters(const train::Recipe& recipe, const std::function<bool(const std::string&)>& select) {
  const nn::Model model(recipe.architecture, Device::meta());
  int64_t bytes = 0;
  for (const NamedTensor& parameter : train::distinct_parameters(model)) {
    if (select(parameter.name)) bytes += parameter.tensor.nbytes();
  }
  return bytes;
}

TEST(Zero3, ARankNeverHoldsMoreThanItsPiecesAndTwoLayers) {
  // Sixteen layers of large matrices; activations and embeddings are small.
  const std::vector<std::string> changes{"architecture=llama-tiny",
                                         "architecture.layers[0].repeat=16",
                                         "architecture.layers[0].pattern[0].ffn.d_ff=4096",
                                         "batch=8",
                                         "length=2",
                                         "accumulation=2"};
  for (const char* checkpointing : {"checkpointing=false", "checkpointing=true"}) {
    const train::Recipe recipe = small_recipe(with(with(changes, zero3(8)), {checkpointing}));
    const int64_t all = bytes_of_parameters(recipe, [](const std::string&) { return true; });
    const int64_t layer = bytes_of_parameters(recipe, [](const std::string& n) { return n.starts_with("layers.0."); });
    const int64_t outer = all - 16 * layer;
    ASSERT_LT(outer, layer);
    comm::run_local_ranks(8, [&](comm::Communicator& c) {
      const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
      const Device device = Device::cpu(1);
      const auto counters = [&] { return device.allocator().counters(); };
      train::Learner learner(recipe, device, own);
      // Pieces of weights, two moments and gradients. Pieces begin at multiples of 4096 elements.
      const int64_t kept = 4 * all / 8 + 4 * 17 * 4 * train::ShardPlan::kAlignment;
      EXPECT_LE(counters().live, kept);
      EXPECT_LE(counters().peak, counters().live + outer + 2 * layer) << "while the model is created";
      device.allocator().reset_peak();
      learner.step(0, [&](int64_t pass) { return batch_of(recipe, pass); });
      // A layer's weights and gradients, each also in the buffer that travels; the weights and gradients outside of
      // layers; activations.
      EXPECT_LE(counters().peak, kept + 4 * layer + 3 * outer + layer) << checkpointing;
      EXPECT_LT(counters().peak, all) << "a quarter of what a rank without ZeRO keeps";
      EXPECT_LE(counters().live, kept + 16 * 1024) << "after an update";
    });
  }
}

TEST(Zero3, RehearsedRanksAgreeAndSendWhatTheyMust) {
  const train::Recipe recipe = small_recipe(with({"architecture.layers[0].repeat=5"}, zero3(4)));
  comm::FakeWorld world(4);
  for (int rank = 0; rank < 4; ++rank) {
    train::Learner learner(recipe, Device::meta(), world.communicator(rank));
    learner.rehearse_update();
    learner.rehearse_evaluation();
  }
  world.check();
  const int64_t all = bytes_of_parameters(recipe, [](const std::string&) { return true; });
  const int64_t layer = bytes_of_parameters(recipe, [](const std::string& n) { return n.starts_with("layers.0."); });
  int64_t gradients = 0;
  int64_t weights = 0;
  for (int rank = 0; rank < 4; ++rank) {
    gradients += world.traffic(rank).at("gradients").bytes;
    weights += world.traffic(rank).at("weights").bytes;
  }
  EXPECT_EQ(gradients, 3 * all);
  // Two passes of forward and backward. The last layer of forward is the first of backward and the last of backward is
  // the first of the next forward, so neither is gathered again. An evaluation gathers everything once.
  EXPECT_EQ(weights, 3 * ((all - 5 * layer) + (2 * (5 + 4) - 1) * layer + all));
}

TEST(ReleasedMemory, ViewsAndTapeRecordsOutliveARelease) {
  const Device device = Device::cpu(1);
  Tape tape;
  Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2}, device);
  tape.watch(x);
  const Tensor row = x.slice(0, 1, 1);
  const Tensor y = ops::mul(x, x);
  const int64_t live = device.allocator().counters().live;
  x.release_memory();
  EXPECT_FALSE(x.has_memory());
  EXPECT_FALSE(row.has_memory());
  EXPECT_LT(device.allocator().counters().live, live);
  EXPECT_THROW(row.to_vector<float>(), Error);
  EXPECT_THROW(x.release_memory(), Error);
  x.restore_memory([&](Tensor again) { again.copy_(Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2}, device)); });
  EXPECT_EQ(row.to_vector<float>(), (std::vector<float>{3, 4}));
  tape.backward({y}, {Tensor::full({2, 2}, 1.0, DType::f32, device)});
  EXPECT_EQ(tape.grad(x).to_vector<float>(), (std::vector<float>{2, 4, 6, 8}));
}

TEST(TapeMark, BackwardReachesMarksInReverse) {
  const Device device = Device::cpu(1);
  Tape tape;
  Tensor x = Tensor::full({1}, 3.0, DType::f32, device);
  tape.watch(x);
  std::string order;
  tape.mark([&] { order += "first "; });
  const Tensor y = ops::mul(x, x);
  tape.mark([&] { order += tape.grad(x).defined() ? "late " : "early "; });
  {
    const NoGrad off(tape);
    tape.mark([&] { order += "never "; });
  }
  tape.backward(y);
  EXPECT_EQ(order, "early first ");
  EXPECT_EQ(tape.grad(x).item(), 6.0);
}

}  // namespace
}  // namespace lamina::testing
