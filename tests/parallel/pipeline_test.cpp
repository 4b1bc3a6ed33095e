// Pipeline stages against one device: loss, norm and every named gradient in f64, five updates, checkpoints,
// evaluation, order of passes, memory, rehearsals, rules.
#include "lamina/train/pipeline.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
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

std::vector<std::string> layout(int dp, int tp, int pp, int zero = 0) {
  return {str("layout.dp=", dp), str("layout.tp=", tp), str("layout.pp=", pp), str("layout.zero=", zero),
          "layout.micro_batch=2"};
}

/// Five layers, so that stages differ.
std::vector<std::string> deep(const std::string& preset) {
  return {"architecture=" + preset, "architecture.layers[0].repeat=5", "optimizer.kind=sgd", "optimizer.lr=0.1"};
}

TEST(Pipeline, LossNormAndEveryGradientEqualOneDeviceInF64) {
  const std::vector<std::vector<std::string>> cases{
      deep("llama-tiny"),
      with(deep("gpt2-tiny"), {"dropout.residual=0.2", "dropout.embedding=0.1"}),  // tied, learned positions
      with(deep("gpt2-tiny"), {"checkpointing=true", "accumulation=3"}),
      with(deep("gemma-2-tiny"), {"z_loss=0.01", "label_smoothing=0.1"}),
      with(deep("opt-tiny"), {"layout.order=ordered"}),
      with(deep("mamba-tiny"), {"accumulation=1"}),
      // Learned positions on the first stage, biases of relative attention on every stage.
      with(deep("gpt2-tiny"), {"architecture.layers[0].pattern[0].mixer.position=transformer_xl"}),
  };
  for (const std::vector<std::string>& changes : cases) {
    const train::Recipe single = small_recipe(changes);
    const First expected = single_device(single);
    for (const auto& [dp, tp, pp] :
         std::vector<std::array<int, 3>>{{1, 1, 2}, {1, 1, 3}, {1, 1, 5}, {2, 1, 2}, {1, 2, 2}}) {
      if (tp > 1 && !arch::tensor_parallel_problems(single.architecture, tp).empty()) continue;
      compare(small_recipe(with(changes, layout(dp, tp, pp))), expected,
              str(changes[0], " dp ", dp, " tp ", tp, " pp ", pp));
    }
    // One micro-batch: fewer passes than stages.
    compare(small_recipe(with(changes, {"layout.pp=4", "layout.micro_batch=12"})), expected, changes[0] + " one pass");
    if (!arch::tensor_parallel_problems(single.architecture, 2).empty()) continue;
    compare(small_recipe(with(changes, {"layout.pp=2", "layout.tp=2", "layout.sequence=true", "layout.micro_batch=5"})),
            expected, changes[0] + " sequence");
  }
}

TEST(Pipeline, EveryPresetIsComputed) {
  int computed = 0;
  for (const std::string& name : arch::preset_names()) {
    if (!name.ends_with("-tiny")) continue;
    const arch::ArchSpec spec = arch::resolve(arch::load_preset(name), name);
    if (!arch::is_causal(spec) || !arch::pipeline_problems(spec, 2).empty()) continue;
    if (has_experts(spec)) continue;  // the balancing loss is that of a micro-batch
    const std::vector<std::string> changes{"architecture=" + name, "accumulation=1", "batch=3"};
    compare(small_recipe(with(changes, {"layout.pp=2", "layout.micro_batch=1"})), single_device(small_recipe(changes)),
            name);
    ++computed;
  }
  EXPECT_GE(computed, 20);
}

TEST(Pipeline, StagesWithExpertsEqualOneDevice) {
  const std::string ffn = "architecture.layers[0].pattern[0].ffn.";
  const std::vector<std::string> changes =
      with(deep("mixtral-tiny"), {ffn + "balance_loss=0.1", ffn + "z_loss=0.01", "dropout.residual=0.1"});
  const First expected = single_device(small_recipe(changes));
  // Without micro_batch: the balancing loss is that of all tokens that ranks compute at a time.
  for (const std::vector<std::string>& other :
       std::vector<std::vector<std::string>>{{"layout.pp=2"},
                                             {"layout.pp=3", "layout.dp=2", "layout.ep=2"},
                                             {"layout.pp=2", "layout.dp=4", "layout.ep=2"},
                                             {"layout.pp=2", "layout.dp=2", "layout.ep=2", "layout.tp=2"}}) {
    compare(small_recipe(with(changes, other)), expected, other[0] + " " + other.back());
  }
}

TEST(Pipeline, RandomArchitecturesAndLayoutsEqualOneDevice) {
  int compared = 0;
  for (uint64_t seed = 2000; compared < 20 && seed < 2400; ++seed) {
    Draw draw(seed);
    const int tp = static_cast<int>(1 + draw.below(2));
    train::Recipe recipe = small_recipe({"batch=7", "length=7", "dropout.residual=0.1"});
    try {
      recipe.architecture = arch::resolve(random_architecture(draw, tp), "random");
    } catch (const arch::SpecError&) {
      continue;  // a combination that no model has
    }
    if (!arch::tensor_parallel_problems(recipe.architecture, tp).empty()) continue;
    ++compared;
    const First expected = single_device(recipe);
    const bool experts = has_experts(recipe.architecture);
    recipe.layout.tp = tp;
    recipe.layout.pp = 2;
    recipe.layout.dp = experts ? 1 : 1 + draw.below(2);
    recipe.layout.micro_batch = experts ? 7 : 1 + draw.below(4);
    recipe.layout.sequence = tp > 1 && draw.coin();
    if (draw.coin()) recipe.layout.recompute = train::Recompute::selective;
    compare(recipe, expected, str("seed ", seed, " tp ", tp, " dp ", recipe.layout.dp));
  }
  EXPECT_EQ(compared, 20);
}

TEST(Pipeline, WeightsAfterFiveUpdatesEqualOneDeviceInF64) {
  for (const char* preset : {"llama-tiny", "gpt2-tiny"}) {
    const std::vector<std::string> changes = with(deep(preset), {"dropout.residual=0.1"});
    const Weights expected = single_device_weights(small_recipe(changes));
    for (const auto& [dp, tp, pp, zero] :
         std::vector<std::array<int, 4>>{{1, 1, 2, 0}, {2, 1, 2, 1}, {2, 1, 3, 2}, {2, 2, 2, 2}}) {
      expect_weights(small_recipe(with(changes, layout(dp, tp, pp, zero))), expected,
                     str(preset, " dp ", dp, " tp ", tp, " pp ", pp, " zero ", zero));
    }
  }
}

TEST(Pipeline, MuonAndAdamWUpdateAsOnOneDevice) {
  for (const char* optimizer : {"muon", "adamw"}) {
    const std::vector<std::string> changes{"architecture=gpt2-tiny", "architecture.layers[0].repeat=3",
                                           str("optimizer.kind=", optimizer), "optimizer.lr=0.01"};
    const Weights expected = single_device_weights(small_recipe(changes));
    // Both amplify the rounding of small gradients.
    expect_weights(small_recipe(with(changes, layout(2, 1, 2, 1))), expected, optimizer, 1e-8);
  }
}

TEST(Pipeline, FiveUpdatesEqualOneDevice) {
  for (const char* preset : {"llama-tiny", "gpt2-tiny"}) {
    const std::vector<std::string> changes = with(deep(preset), {"ema=0.9"});
    const Trained one = train_five(small_recipe(changes), nullptr);
    for (const auto& [dp, tp, pp, zero] : std::vector<std::array<int, 4>>{{1, 1, 3, 0}, {2, 1, 2, 2}, {2, 2, 2, 1}}) {
      const Trained many = train_on_ranks(dp * tp * pp, small_recipe(with(changes, layout(dp, tp, pp, zero))));
      const std::string what = str(preset, " dp ", dp, " tp ", tp, " pp ", pp, " zero ", zero);
      ASSERT_EQ(one.tensors.size(), many.tensors.size()) << what;
      EXPECT_LE(largest_difference(one, many), 5e-6) << what;
      EXPECT_NEAR(one.losses[4], many.losses[4], 5e-6) << what;
      EXPECT_NEAR(one.norms[4], many.norms[4], 5e-5) << what;
    }
  }
}

TEST(Pipeline, CheckpointsLoadIntoAnyLayoutAndBackWithTheSameBytes) {
  const std::vector<std::string> common{"architecture=gpt2-tiny", "architecture.layers[0].repeat=3", "ema=0.9",
                                        "dtype=bf16"};
  const Checkpoint first = through(with(common, layout(2, 1, 2, 2)), nullptr, 2);
  for (const std::vector<std::string>& other :
       {layout(1, 1, 1), layout(1, 2, 3, 1), layout(2, 2, 2), layout(4, 1, 1, 2)}) {
    const Checkpoint again = through(with(common, other), &first, 0);
    EXPECT_EQ(bytes_of(first.weights), bytes_of(again.weights)) << other[0] << " " << other[2];
    EXPECT_EQ(bytes_of(first.state), bytes_of(again.state)) << other[0] << " " << other[2];
  }
}

TEST(Pipeline, EvaluationEqualsOneDevice) {
  const train::Recipe recipe = small_recipe(deep("gemma-2-tiny"));
  for (const bool accuracy : {false, true}) {
    const train::EvaluationData data{
        .batches = 3, .at = [&](int64_t i) { return batch_of(recipe, 100 + i); }, .accuracy = accuracy};
    const std::optional<train::Measured> expected = train::Learner(recipe, Device::cpu(1)).evaluate(data);
    for (const auto& [dp, tp] : std::vector<std::pair<int, int>>{{1, 1}, {2, 1}, {2, 2}}) {
      const train::Recipe divided = small_recipe(with(deep("gemma-2-tiny"), layout(dp, tp, 2)));
      comm::run_local_ranks(dp * tp * 2, [&](comm::Communicator& c) {
        const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
        const std::optional<train::Measured> got = train::Learner(divided, Device::cpu(1), own).evaluate(data);
        EXPECT_NEAR(got->loss, expected->loss, 1e-6);
        ASSERT_EQ(got->accuracy.has_value(), accuracy);
        if (accuracy) {
          EXPECT_EQ(got->accuracy->tokens, expected->accuracy->tokens);
          EXPECT_EQ(got->accuracy->examples, expected->accuracy->examples);
        }
      });
    }
  }
}

TEST(Pipeline, AStageAlternatesAndKeepsFewPasses) {
  for (const int stages : {1, 2, 3, 4}) {
    for (const int64_t passes : {1, 2, 3, 7}) {
      std::mutex mutex;
      comm::run_local_ranks(stages, [&](comm::Communicator& c) {
        const bool first = c.rank() == 0;
        const bool last = c.rank() + 1 == stages;
        int64_t in_flight = 0;
        int64_t most = 0;
        std::vector<double> seen;
        const auto number = [](double value) { return Tensor::full({1}, value, DType::f64, Device::cpu(1)); };
        train::run_one_forward_one_backward(
            stages == 1 ? nullptr : &c,
            {.count = passes,
             .states = [&](int64_t /*pass*/) { return number(-1); },
             .forward =
                 [&](const train::StagePass& at, const Tensor& x) {
                   const int64_t pass = at.pass;
                   most = std::max(most, ++in_flight);
                   // Stage s gets pass + 10 · s.
                   if (!first) {
                     EXPECT_EQ(x.item(), static_cast<double>(pass + 10 * c.rank()));
                   }
                   return last ? Tensor() : number(static_cast<double>(pass + 10 * (c.rank() + 1)));
                 },
             .backward =
                 [&](const train::StagePass& at, const Tensor& dy) {
                   const int64_t pass = at.pass;
                   --in_flight;
                   seen.push_back(static_cast<double>(pass));
                   if (!last) {
                     EXPECT_EQ(dy.item(), static_cast<double>(pass + 100 * (c.rank() + 1)));
                   }
                   return first ? Tensor() : number(static_cast<double>(pass + 100 * c.rank()));
                 }});
        const std::lock_guard lock(mutex);
        EXPECT_EQ(in_flight, 0);
        EXPECT_EQ(most, train::passes_in_flight({c.rank(), stages}, passes));
        ASSERT_EQ(static_cast<int64_t>(seen.size()), passes);
        EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
      });
    }
  }
}

TEST(Tape, GraphsThatWereSetAsideKeepTheirGradients) {
  const auto number = [](double value) { return Tensor::full({1}, value, DType::f64, Device::cpu(1)); };
  Tape tape;
  Tensor a = number(3);
  tape.watch(a);
  const Tensor square = ops::mul(a, a);
  TapeRecords first = tape.set_aside();
  EXPECT_EQ(tape.size(), 0U);
  const Tensor cube = ops::mul(ops::mul(a, a), a);
  TapeRecords second = tape.set_aside();
  EXPECT_THROW(tape.backward(square), Error);     // its graph is not on the tape
  EXPECT_THROW(ops::mul(square, square), Error);  // so nothing more can be recorded on it
  tape.resume(std::move(first));
  EXPECT_THROW(tape.backward(cube), Error);
  tape.backward(square);
  EXPECT_EQ(tape.grad(a).item(), 6);
  const Tensor third = ops::mul(a, number(5));  // recorded between two backwards
  EXPECT_THROW(tape.resume(second), Error);     // the tape has another graph
  TapeRecords last = tape.set_aside();
  tape.resume(std::move(second));
  tape.backward(cube);
  EXPECT_EQ(tape.grad(a).item(), 6 + 27);
  tape.resume(std::move(last));
  tape.backward(third);
  EXPECT_EQ(tape.grad(a).item(), 6 + 27 + 5);
  EXPECT_THROW(tape.resume(TapeRecords()), Error);
}

TEST(Pipeline, AStageHasOnlyItsLayers) {
  for (const char* preset : {"llama-tiny", "gpt2-tiny"}) {
    const arch::ArchSpec spec = small_recipe(deep(preset)).architecture;
    const nn::Model whole(spec, Device::meta());
    std::map<std::string, int> held;
    for (int stage = 0; stage < 3; ++stage) {
      const nn::Model part(spec, Device::cpu(1), {.stage = {stage, 3}});
      EXPECT_LT(part.parameters().size(), whole.parameters().size() / 2 + 1);
      for (const auto& [name, tensor] : part.state_dict()) ++held[name];
    }
    for (const auto& [name, tensor] : whole.state_dict()) {
      const bool tied = spec.head.tied && name == "embedding.weight";
      EXPECT_EQ(held[name], tied ? 2 : 1) << preset << " " << name;
    }
    EXPECT_EQ(held.size(), whole.state_dict().size()) << preset;
  }
}

TEST(Pipeline, RehearsedRanksAgree) {
  const train::Recipe recipe = small_recipe(with(deep("gpt2-tiny"), layout(2, 2, 3, 1)));
  comm::FakeWorld world(12);
  for (int rank = 0; rank < 12; ++rank) {
    train::Learner learner(recipe, Device::meta(), world.communicator(rank));
    learner.rehearse_update();
    learner.rehearse_evaluation();
  }
  world.check();
  for (const char* label : {"pipeline", "shared gradients", "gradients", "weights"}) {
    EXPECT_GT(world.traffic(0).contains(label) ? world.traffic(0).at(label).bytes : 0, 0) << label;
  }
}

TEST(Pipeline, WhatCannotBeDividedIsRefused) {
  const auto problems = [](const std::vector<std::string>& changes) -> std::string {
    try {
      small_recipe(changes);
    } catch (const arch::SpecError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(problems({"layout.pp=9"}).find("pipeline stages"), std::string::npos);
  EXPECT_NE(problems({"architecture=bart-tiny", "layout.pp=2"}).find("encoder"), std::string::npos);
  const arch::ArchSpec spec = small_recipe(deep("llama-tiny")).architecture;
  nn::Model stage(spec, Device::cpu(1), {.stage = {1, 2}});
  const Tensor ids = Tensor::zeros({1, 3}, DType::i64, Device::cpu(1));
  EXPECT_THROW(stage.logits(ids), Error);
  EXPECT_THROW(stage.loss(ids, ids), Error);
  EXPECT_THROW(stage.stage_loss(ids, {}, ids), Error);
}

}  // namespace
}  // namespace lamina::testing
