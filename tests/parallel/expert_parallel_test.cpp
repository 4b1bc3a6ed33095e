// Expert parallel against one device: loss, norm and every named gradient in f64, five updates, checkpoints,
// evaluation, memory, rehearsals, rules.
#include "lamina/arch/resolve.h"
#include "lamina/comm/fake.h"
#include "parallel/first_update.h"
#include "parallel/random_architecture.h"
#include "parallel/run_support.h"

namespace lamina::testing {
namespace {

/// A small mixture of experts with both losses of the router.
std::vector<std::string> experts(const std::string& preset) {
  const std::string ffn = "architecture.layers[0].pattern[0].ffn.";
  return {"architecture=" + preset, "optimizer.kind=sgd", "optimizer.lr=0.1", ffn + "balance_loss=0.1",
          ffn + "z_loss=0.01"};
}

std::vector<std::string> with(std::vector<std::string> changes, const std::vector<std::string>& more) {
  changes.insert(changes.end(), more.begin(), more.end());
  return changes;
}

std::vector<std::string> layout(int dp, int tp, int ep, int zero = 0) {
  return {str("layout.dp=", dp), str("layout.tp=", tp), str("layout.ep=", ep), str("layout.zero=", zero)};
}

TEST(ExpertParallel, LossNormAndEveryGradientEqualOneDeviceInF64) {
  for (const char* preset : {"mixtral-tiny", "gpt-oss-tiny"}) {
    for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
             {}, {"dropout.residual=0.2", "label_smoothing=0.1"}, {"checkpointing=true"}}) {
      const std::vector<std::string> changes = with(experts(preset), more);
      const First expected = single_device(small_recipe(changes));
      for (const auto& [dp, tp, ep] : std::vector<std::array<int, 3>>{{2, 1, 2}, {4, 1, 4}, {4, 1, 2}, {2, 2, 2}}) {
        compare(small_recipe(with(changes, layout(dp, tp, ep))), expected,
                str(preset, " dp ", dp, " tp ", tp, " ep ", ep, more.empty() ? "" : " " + more[0]));
      }
      compare(small_recipe(with(with(changes, layout(2, 2, 2)), {"layout.sequence=true"})), expected,
              str(preset, " sequence"));
    }
  }
}

TEST(ExpertParallel, RanksWithDifferentNumbersOfRowsAndExperts) {
  const std::vector<std::string> changes =
      with(experts("mixtral-tiny"), {"architecture.layers[0].pattern[0].ffn.experts=7"});
  const First expected = single_device(small_recipe(changes));
  compare(small_recipe(with(changes, layout(5, 1, 5))), expected, "12 rows and 7 experts on 5 ranks");
}

TEST(ExpertParallel, DiagonalBlocksOfOtherLayersAreNotExperts) {
  const std::string block = "architecture.layers[0].pattern[0].";
  const std::vector<std::string> changes =
      with(experts("mixtral-tiny"), {block + "mixer={\"kind\":\"rg_lru\",\"blocks\":4}"});
  const First expected = single_device(small_recipe(changes));
  for (const int zero : {0, 3}) compare(small_recipe(with(changes, layout(2, 1, 2, zero))), expected, "rg_lru");
}

TEST(ExpertParallel, RandomArchitecturesAndLayoutsEqualOneDevice) {
  int compared = 0;
  for (uint64_t seed = 1000; compared < 16 && seed < 1400; ++seed) {
    Draw draw(seed);
    const int tp = static_cast<int>(1 + draw.below(2));
    const int ep = static_cast<int>(2 + draw.below(2));
    train::Recipe recipe = small_recipe({"batch=7", "length=7", "dropout.residual=0.1"});
    try {
      recipe.architecture = arch::resolve(random_architecture(draw, tp), "random");
    } catch (const arch::SpecError&) {
      continue;  // a combination that no model has
    }
    if (!arch::tensor_parallel_problems(recipe.architecture, tp).empty()) continue;
    if (!arch::expert_parallel_problems(recipe.architecture, ep).empty()) continue;
    ++compared;
    const First expected = single_device(recipe);
    recipe.layout.tp = tp;
    recipe.layout.ep = ep;
    recipe.layout.dp = ep * (1 + draw.below(2));
    recipe.layout.sequence = tp > 1 && draw.coin();
    if (draw.coin()) recipe.layout.recompute = train::Recompute::selective;
    compare(recipe, expected, str("seed ", seed, " tp ", tp, " ep ", ep, " dp ", recipe.layout.dp));
  }
  EXPECT_EQ(compared, 16);
}

TEST(ExpertParallel, WeightsAfterFiveUpdatesEqualOneDeviceInF64) {
  const std::vector<std::string> changes = with(experts("mixtral-tiny"), {"dropout.residual=0.1"});
  const Weights expected = single_device_weights(small_recipe(changes));
  for (const auto& [dp, tp, ep, zero] :
       std::vector<std::array<int, 4>>{{2, 1, 2, 0}, {4, 1, 2, 1}, {4, 1, 2, 2}, {2, 2, 2, 2}, {4, 1, 4, 2}}) {
    expect_weights(small_recipe(with(changes, layout(dp, tp, ep, zero))), expected,
                   str("dp ", dp, " tp ", tp, " ep ", ep, " zero ", zero));
  }
}

TEST(ExpertParallel, MuonUpdatesEveryExpertAsOneDeviceDoes) {
  const std::vector<std::string> changes{"architecture=mixtral-tiny", "optimizer.kind=muon"};
  const Weights expected = single_device_weights(small_recipe(changes));
  for (const int zero : {0, 2}) {  // Newton–Schulz iterations amplify rounding
    expect_weights(small_recipe(with(changes, layout(4, 1, 2, zero))), expected, str("Muon, zero ", zero), 1e-9);
  }
}

TEST(ExpertParallel, FiveUpdatesEqualOneDevice) {
  const std::vector<std::string> changes = with(experts("mixtral-tiny"), {"ema=0.9"});
  const Trained one = train_five(small_recipe(changes), nullptr);
  for (const auto& [dp, tp, ep, zero] : std::vector<std::array<int, 4>>{{2, 1, 2, 0}, {4, 1, 2, 2}, {2, 2, 2, 1}}) {
    const Trained many = train_on_ranks(dp * tp, small_recipe(with(changes, layout(dp, tp, ep, zero))));
    const std::string what = str("dp ", dp, " tp ", tp, " ep ", ep, " zero ", zero);
    ASSERT_EQ(one.tensors.size(), many.tensors.size()) << what;
    EXPECT_LE(largest_difference(one, many), 5e-6) << what;
    EXPECT_NEAR(one.losses[4], many.losses[4], 5e-6) << what;
    EXPECT_NEAR(one.norms[4], many.norms[4], 5e-5) << what;
  }
}

TEST(ExpertParallel, CheckpointsLoadIntoAnyLayoutAndBackWithTheSameBytes) {
  const std::vector<std::string> common{"architecture=mixtral-tiny", "ema=0.9", "dtype=bf16"};
  const Checkpoint first = through(with(common, layout(4, 1, 2, 2)), nullptr, 2);
  for (const std::vector<std::string>& other :
       {layout(1, 1, 1), layout(2, 2, 2, 1), layout(4, 1, 4), layout(2, 1, 2, 2)}) {
    const Checkpoint again = through(with(common, other), &first, 0);
    EXPECT_EQ(bytes_of(first.weights), bytes_of(again.weights)) << other[0] << " " << other[2];
    EXPECT_EQ(bytes_of(first.state), bytes_of(again.state)) << other[0] << " " << other[2];
  }
}

TEST(ExpertParallel, EvaluationEqualsOneDevice) {
  const train::Recipe recipe = small_recipe(experts("mixtral-tiny"));
  for (const bool accuracy : {false, true}) {
    // 3 batches for 4 ranks: one has no batch of its own but exchanges tokens with the others.
    const train::EvaluationData data{
        .batches = 3, .at = [&](int64_t i) { return batch_of(recipe, 100 + i); }, .accuracy = accuracy};
    const std::optional<train::Measured> expected = train::Learner(recipe, Device::cpu(1)).evaluate(data);
    comm::run_local_ranks(4, [&](comm::Communicator& c) {
      const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
      const train::Recipe divided = small_recipe(with(experts("mixtral-tiny"), layout(4, 1, 2)));
      const std::optional<train::Measured> got = train::Learner(divided, Device::cpu(1), own).evaluate(data);
      EXPECT_NEAR(got->loss, expected->loss, 1e-6);
      EXPECT_EQ(got->accuracy.has_value(), accuracy);
      if (accuracy) {
        EXPECT_EQ(got->accuracy->tokens, expected->accuracy->tokens);
      }
    });
  }
}

TEST(ExpertParallel, ARankHasOnlyItsExperts) {
  const arch::ArchSpec spec = small_recipe(experts("mixtral-tiny")).architecture;
  const auto elements = [](const nn::Model& model, bool of_experts) {
    int64_t sum = 0;
    for (const auto& [name, tensor] : model.named_parameters()) {
      if ((name.find(".experts.") != std::string::npos) == of_experts) sum += tensor.numel();
    }
    return sum;
  };
  const nn::Model whole(spec, Device::meta());
  std::atomic<int64_t> sum{0};
  comm::run_local_ranks(4, [&](comm::Communicator& c) {
    const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
    const nn::Model part(spec, Device::cpu(1), {.experts = std::make_shared<nn::ExpertParallel>(own, own)});
    EXPECT_EQ(elements(part, false), elements(whole, false));
    EXPECT_EQ(elements(part, true), elements(whole, true) / 4);
    sum += elements(part, true);
  });
  EXPECT_EQ(sum, elements(whole, true));
}

TEST(ExpertParallel, RehearsedRanksAgree) {
  const train::Recipe recipe = small_recipe(with(experts("mixtral-tiny"), with(layout(4, 2, 2, 2), {"batch=13"})));
  comm::FakeWorld world(8);
  for (int rank = 0; rank < 8; ++rank) {
    train::Learner learner(recipe, Device::meta(), world.communicator(rank));
    learner.rehearse_update();
  }
  world.check();
  const auto traffic = world.traffic(0);
  for (const char* label : {"expert rows", "expert rows gradients", "expert outputs", "expert outputs gradients",
                            "expert load", "gradients", "weights"}) {
    EXPECT_GT(traffic.contains(label) ? traffic.at(label).bytes : 0, 0) << label;
  }
}

TEST(ExpertParallel, WhatCannotBeDividedIsRefused) {
  const auto problems = [](const std::vector<std::string>& changes) -> std::string {
    try {
      small_recipe(changes);
    } catch (const arch::SpecError& error) {
      return error.what();
    }
    return "";
  };
  const auto expect = [&](const std::vector<std::string>& changes, const std::string& text) {
    EXPECT_NE(problems(changes).find(text), std::string::npos) << problems(changes);
  };
  expect({"layout.dp=2", "layout.ep=2"}, "no layer has experts");
  expect(with(experts("mixtral-tiny"), layout(3, 1, 2)), "does not divide dp");
  expect(with(experts("mixtral-tiny"), with(layout(2, 1, 2), {"layout.order=ordered"})), "ordered with ep");
  expect(with(experts("mixtral-tiny"), layout(12, 1, 12)), "experts for 12");
  expect(with(experts("mixtral-tiny"), with(layout(2, 1, 2), {"batch=3", "layout.micro_batch=1"})), "micro-batches");
  expect(with(experts("mixtral-tiny"), with(layout(2, 1, 2), {"architecture.layers[0].pattern[0].ffn.capacity=3"})),
         "capacity per sequence");
}

}  // namespace
}  // namespace lamina::testing
