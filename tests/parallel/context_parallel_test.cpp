// Context parallel against one device: loss, norm and every named gradient in f64, packed documents, five updates,
// checkpoints, evaluation, rehearsals, rules.
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/comm/fake.h"
#include "parallel/first_update.h"
#include "parallel/random_architecture.h"
#include "parallel/run_support.h"

namespace lamina::testing {
namespace {

std::vector<std::string> with(std::vector<std::string> changes, const std::vector<std::string>& more) {
  changes.insert(changes.end(), more.begin(), more.end());
  return changes;
}

std::vector<std::string> layout(int dp, int tp, int cp, int zero = 0) {
  return {str("layout.dp=", dp), str("layout.tp=", tp), str("layout.cp=", cp), str("layout.zero=", zero)};
}

TEST(ContextParallel, LossNormAndEveryGradientEqualOneDeviceInF64) {
  const std::vector<std::vector<std::string>> cases{
      {"architecture=llama-tiny"},
      {"architecture=gpt2-tiny", "dropout.residual=0.2", "dropout.embedding=0.1"},
      {"architecture=gemma-2-tiny", "z_loss=0.01", "label_smoothing=0.1", "checkpointing=true"},
      {"architecture=deepseek-tiny"},
      {"architecture=gpt-oss-tiny"},
      {"architecture=bloom-tiny"},
      {"architecture=qwen3-tiny", "layout.order=ordered"},
  };
  for (const std::vector<std::string>& changes : cases) {
    const train::Recipe single = small_recipe(changes);
    const First expected = single_device(single);
    for (const auto& [dp, tp, cp] : std::vector<std::array<int, 3>>{{1, 1, 2}, {1, 1, 5}, {2, 1, 2}, {1, 2, 2}}) {
      if (dp > 1 && has_experts(single.architecture)) continue;
      compare(small_recipe(with(changes, layout(dp, tp, cp))), expected,
              str(changes[0], " dp ", dp, " tp ", tp, " cp ", cp));
    }
    compare(small_recipe(with(changes, with(layout(1, 2, 2), {"layout.sequence=true"}))), expected,
            changes[0] + " sequence");
    if (has_experts(single.architecture)) continue;
    compare(small_recipe(with(changes, {"layout.cp=2", "layout.pp=2", "layout.micro_batch=4"})), expected,
            changes[0] + " pipeline");
    compare(small_recipe(with(changes, {"layout.cp=3", "layout.micro_batch=5"})), expected, changes[0] + " passes");
  }
}

TEST(ContextParallel, RanksWithoutTokensEqualOneDevice) {
  // Each of three ranks has three tokens of a row, which four ranks share.
  const std::vector<std::string> changes{"length=9", "batch=2", "dropout.embedding=0.1", "dropout.residual=0.1"};
  compare(small_recipe(with(changes, with(layout(1, 4, 3), {"layout.sequence=true", "layout.micro_batch=1"}))),
          single_device(small_recipe(changes)), "four ranks share three tokens");
}

TEST(ContextParallel, PackedDocumentsEqualOneDevice) {
  for (const char* preset : {"llama-tiny", "gpt2-tiny", "gemma-2-tiny", "deepseek-tiny", "bloom-tiny"}) {
    const std::vector<std::string> changes{str("architecture=", preset), "data.order=packed", "dropout.residual=0.1",
                                           "architecture.context=120"};
    const First expected = single_device(small_recipe(changes));
    for (const std::vector<std::string>& other : std::vector<std::vector<std::string>>{
             layout(1, 1, 2), layout(1, 1, 4), layout(1, 2, 2), {"layout.tp=2"}, {"layout.cp=2", "layout.pp=2"}}) {
      compare(small_recipe(with(changes, other)), expected, str(preset, " ", other[0], " ", other.back()));
    }
  }
}

TEST(ContextParallel, ExpertsEqualOneDevice) {
  const std::string ffn = "architecture.layers[0].pattern[0].ffn.";
  const std::vector<std::string> changes{"architecture=mixtral-tiny", ffn + "balance_loss=0.1", ffn + "z_loss=0.01"};
  const First expected = single_device(small_recipe(changes));
  for (const std::vector<std::string>& other :
       std::vector<std::vector<std::string>>{layout(1, 1, 2),
                                             layout(1, 2, 3),
                                             {"layout.cp=2", "layout.dp=2", "layout.ep=2"},
                                             {"layout.cp=2", "layout.dp=4", "layout.ep=2", "layout.zero=2"}}) {
    if (other.back() == "layout.zero=2") continue;  // compared by weights below
    compare(small_recipe(with(changes, other)), expected, other[0] + " " + other.back());
  }
}

TEST(ContextParallel, EveryPresetIsComputedOrRefused) {
  int computed = 0;
  for (const std::string& name : arch::preset_names()) {
    if (!name.ends_with("-tiny")) continue;
    const arch::ArchSpec spec = arch::resolve(arch::load_preset(name), name);
    if (!arch::is_causal(spec) || !arch::context_parallel_problems(spec, 2).empty()) continue;
    const std::vector<std::string> changes{"architecture=" + name, "accumulation=1", "batch=3"};
    compare(small_recipe(with(changes, layout(1, 1, 2))), single_device(small_recipe(changes)), name);
    ++computed;
  }
  EXPECT_GE(computed, 20);
}

TEST(ContextParallel, RandomArchitecturesAndLayoutsEqualOneDevice) {
  int compared = 0;
  for (uint64_t seed = 3000; compared < 20 && seed < 3400; ++seed) {
    Draw draw(seed);
    const int tp = static_cast<int>(1 + draw.below(2));
    train::Recipe recipe = small_recipe({"batch=4", "length=11", "dropout.residual=0.1"});
    try {
      recipe.architecture = arch::resolve(random_architecture(draw, tp), "random");
    } catch (const arch::SpecError&) {
      continue;  // a combination that no model has
    }
    recipe.layout.cp = 2 + draw.below(3);
    if (!arch::tensor_parallel_problems(recipe.architecture, tp).empty()) continue;
    if (!arch::context_parallel_problems(recipe.architecture, recipe.layout.cp).empty()) continue;
    ++compared;
    const int64_t cp = recipe.layout.cp;
    recipe.layout.cp = 1;
    const First expected = single_device(recipe);
    const bool experts = has_experts(recipe.architecture);
    recipe.layout.cp = cp;
    recipe.layout.tp = tp;
    recipe.layout.pp = 1 + draw.below(2);
    recipe.layout.dp = experts ? 1 : 1 + draw.below(2);
    recipe.layout.micro_batch = experts ? 4 : 1 + draw.below(4);
    recipe.layout.sequence = tp > 1 && draw.coin();
    if (draw.coin()) recipe.layout.recompute = train::Recompute::selective;
    compare(recipe, expected,
            str("seed ", seed, " tp ", tp, " dp ", recipe.layout.dp, " pp ", recipe.layout.pp, " cp ", cp));
  }
  EXPECT_EQ(compared, 20);
}

TEST(ContextParallel, WeightsAfterFiveUpdatesEqualOneDeviceInF64) {
  for (const std::vector<std::string>& changes :
       std::vector<std::vector<std::string>>{{"architecture=llama-tiny", "dropout.residual=0.1"},
                                             {"architecture=gpt2-tiny"},
                                             {"architecture=llama-tiny", "data.order=packed"}}) {
    const std::vector<std::string> common = with(changes, {"optimizer.kind=sgd", "optimizer.lr=0.1"});
    const Weights expected = single_device_weights(small_recipe(common));
    for (const auto& [dp, tp, cp, zero] : std::vector<std::array<int, 4>>{{1, 1, 2, 0},
                                                                          {1, 1, 4, 1},
                                                                          {1, 1, 4, 2},
                                                                          {2, 1, 2, 1},
                                                                          {2, 1, 2, 2},
                                                                          {2, 2, 2, 2},
                                                                          {1, 1, 4, 3},
                                                                          {2, 1, 2, 3}}) {
      if (dp > 1 && common[1] == "data.order=packed") continue;
      expect_weights(small_recipe(with(common, layout(dp, tp, cp, zero))), expected,
                     str(common[0], " dp ", dp, " tp ", tp, " cp ", cp, " zero ", zero));
    }
  }
}

TEST(ContextParallel, FiveUpdatesEqualOneDevice) {
  const std::vector<std::string> changes{"architecture=llama-tiny", "ema=0.9", "optimizer.kind=sgd",
                                         "optimizer.lr=0.1"};
  const Trained one = train_five(small_recipe(changes), nullptr);
  for (const auto& [dp, tp, cp, zero] :
       std::vector<std::array<int, 4>>{{1, 1, 2, 0}, {1, 1, 4, 2}, {2, 1, 2, 1}, {1, 2, 2, 2}}) {
    const Trained many = train_on_ranks(dp * tp * cp, small_recipe(with(changes, layout(dp, tp, cp, zero))));
    const std::string what = str("dp ", dp, " tp ", tp, " cp ", cp, " zero ", zero);
    ASSERT_EQ(one.tensors.size(), many.tensors.size()) << what;
    EXPECT_LE(largest_difference(one, many), 5e-6) << what;
    EXPECT_NEAR(one.losses[4], many.losses[4], 5e-6) << what;
    EXPECT_NEAR(one.norms[4], many.norms[4], 5e-5) << what;
  }
}

TEST(ContextParallel, CheckpointsLoadIntoAnyLayoutAndBackWithTheSameBytes) {
  const std::vector<std::string> common{"architecture=mixtral-tiny", "ema=0.9", "dtype=bf16"};
  const Checkpoint first = through(with(common, with(layout(2, 1, 2, 2), {"layout.ep=2"})), nullptr, 2);
  for (const std::vector<std::string>& other :
       {layout(1, 1, 1), layout(1, 2, 2, 1), layout(1, 1, 4, 2), with(layout(2, 2, 2, 2), {"layout.ep=2"})}) {
    const Checkpoint again = through(with(common, other), &first, 0);
    EXPECT_EQ(bytes_of(first.weights), bytes_of(again.weights)) << other[0] << " " << other[2];
    EXPECT_EQ(bytes_of(first.state), bytes_of(again.state)) << other[0] << " " << other[2];
  }
}

TEST(ContextParallel, EvaluationEqualsOneDevice) {
  const train::Recipe recipe = small_recipe({});
  const train::EvaluationData data{
      .batches = 3, .at = [&](int64_t i) { return batch_of(recipe, 100 + i); }, .accuracy = true};
  const std::optional<train::Measured> expected = train::Learner(recipe, Device::cpu(1)).evaluate(data);
  comm::run_local_ranks(4, [&](comm::Communicator& c) {
    const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
    const std::optional<train::Measured> got =
        train::Learner(small_recipe(layout(2, 1, 2)), Device::cpu(1), own).evaluate(data);
    EXPECT_EQ(got->loss, expected->loss);
    EXPECT_EQ(got->accuracy->tokens, expected->accuracy->tokens);
  });
}

TEST(ContextParallel, RehearsedRanksAgree) {
  const std::vector<std::string> changes = with(layout(2, 2, 3, 2), {"layout.sequence=true", "length=64"});
  for (const char* preset : {"llama-tiny", "gpt2-tiny", "bloom-tiny"}) {
    const train::Recipe recipe = small_recipe(with({str("architecture=", preset)}, changes));
    comm::FakeWorld world(12);
    for (int rank = 0; rank < 12; ++rank) {
      train::Learner learner(recipe, Device::meta(), world.communicator(rank));
      learner.rehearse_update();
    }
    world.check();
    const bool ring = std::string(preset) != "bloom-tiny";  // ALiBi depends on the distance
    for (const char* label : {ring ? "key and value blocks" : "gathered keys and values",
                              ring ? "key and value gradients" : "gathered keys and values", "gradients", "weights"}) {
      int64_t bytes = 0;
      for (int rank = 0; rank < 12; ++rank) {
        const auto traffic = world.traffic(rank);
        if (traffic.contains(label)) bytes += traffic.at(label).bytes;
      }
      EXPECT_GT(bytes, 0) << label;
    }
  }
}

TEST(ContextParallel, ARingSendsEachBlockToEveryRank) {
  for (const int cp : {2, 4}) {
    const train::Recipe recipe =
        small_recipe({"architecture=llama-tiny", "length=16", "batch=3", "accumulation=1", str("layout.cp=", cp)});
    comm::FakeWorld world(cp);
    for (int rank = 0; rank < cp; ++rank) {
      train::Learner(recipe, Device::meta(), world.communicator(rank)).rehearse_update();
    }
    world.check();
    const int64_t block = 3 * (16 / cp) * 2 * (8 + 8) * 4;  // rows · tokens · KV heads · (d_qk + d_v) · bytes
    const int64_t layers = 2;
    for (int rank = 0; rank < cp; ++rank) {
      EXPECT_EQ(world.traffic(rank).at("key and value blocks").bytes, 2 * layers * (cp - 1) * block);
      EXPECT_EQ(world.traffic(rank).at("key and value gradients").bytes, layers * cp * block);
    }
  }
}

TEST(ContextParallel, ActivationsAreDivided) {
  const auto peak = [](int64_t cp) {
    const train::Recipe recipe =
        small_recipe({"architecture.context=4096", "length=4096", "batch=1", "accumulation=1", str("layout.cp=", cp)});
    const Device meta = Device::meta();
    train::Learner learner(recipe, meta, cp == 1 ? nullptr : comm::FakeWorld(static_cast<int>(cp)).communicator(0));
    const int64_t before = meta.allocator().counters().live;
    learner.rehearse_update();
    return meta.allocator().counters().peak - before;
  };
  const int64_t whole = peak(1);
  EXPECT_LT(peak(2), whole * 6 / 10);
  EXPECT_LT(peak(4), whole * 4 / 10);
}

TEST(ContextParallel, WhatCannotBeDividedIsRefused) {
  const auto problems = [](const std::vector<std::string>& changes) -> std::string {
    try {
      small_recipe(changes);
    } catch (const arch::SpecError& error) {
      return error.what();
    }
    return "";
  };
  const auto expect = [&](const std::vector<std::string>& changes, const std::string& text) {
    EXPECT_NE(problems(with(changes, {"layout.cp=2"})).find(text), std::string::npos) << problems(changes);
  };
  EXPECT_EQ(problems({"layout.cp=5"}), "");
  EXPECT_EQ(problems({"layout.cp=2", "data.order=packed"}), "");
  expect({"length=3"}, "at most length / 2 ranks");
  expect({"dropout.attention=0.1"}, "context-parallel ranks");
  expect({"architecture=mamba-tiny"}, "from position to position");
  expect({"architecture=mamba2-tiny"}, "from position to position");
  expect({"architecture=bart-tiny"}, "encoder");
  expect({"data.order=packed", "layout.dp=2"}, "packed");
}

}  // namespace
}  // namespace lamina::testing
