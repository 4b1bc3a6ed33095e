// Runs of tensor-parallel ranks against one device: five updates, checkpoints, evaluation, logits, rehearsals, rules.
#include "lamina/comm/fake.h"
#include "parallel/run_support.h"

namespace lamina::testing {
namespace {

TEST(TensorParallel, WeightsAfterFiveUpdatesEqualOneDeviceInF64) {
  for (const char* preset :
       {"architecture=llama-tiny", "architecture=gpt2-tiny", "architecture=deepseek-tiny", "architecture=mamba-tiny"}) {
    const std::vector<std::string> changes{preset, "optimizer.kind=sgd", "optimizer.lr=0.1", "dropout.residual=0.1"};
    const Weights expected = single_device_weights(small_recipe(changes));
    for (const auto& [dp, tp, zero] : std::vector<std::array<int, 3>>{{1, 2, 0}, {1, 4, 0}, {2, 2, 2}}) {
      if (dp > 1 && has_experts(small_recipe(changes).architecture)) continue;
      std::vector<std::string> layout = changes;
      layout.insert(layout.end(), {str("layout.dp=", dp), str("layout.tp=", tp), str("layout.zero=", zero),
                                   str("layout.sequence=", tp == 4 ? "true" : "false")});
      expect_weights(small_recipe(layout), expected, str(preset, ", dp ", dp, " tp ", tp));
    }
  }
}

TEST(TensorParallel, MuonUpdatesWholeMatricesAsOneDeviceDoes) {
  const std::string heads = "architecture.layers[0].pattern[0].mixer.n_kv_heads=2";
  for (const std::vector<std::string>& changes :
       std::vector<std::vector<std::string>>{{"architecture=gpt2-tiny"},
                                             {"architecture=qwen3-tiny", heads},  // several ranks hold a KV head
                                             {"architecture=deepseek-tiny"},
                                             {"architecture=mixtral-tiny"},
                                             {"architecture=mamba-tiny"}}) {
    std::vector<std::string> muon = changes;
    muon.insert(muon.end(), {"optimizer.kind=muon", "accumulation=1"});
    const Weights expected = single_device_weights(small_recipe(muon));
    const bool experts = has_experts(small_recipe(muon).architecture);
    for (const auto& [dp, tp, pp, zero] : std::vector<std::array<int, 4>>{
             {1, 2, 1, 0}, {1, 4, 1, 0}, {1, 3, 1, 0}, {2, 2, 1, 1}, {2, 3, 1, 2}, {2, 2, 1, 3}, {1, 2, 2, 0}}) {
      if (experts && (dp > 1 || pp > 1)) continue;
      std::vector<std::string> layout = muon;
      layout.insert(layout.end(), {str("layout.dp=", dp), str("layout.tp=", tp), str("layout.pp=", pp),
                                   str("layout.zero=", zero), str("layout.sequence=", tp == 4 ? "true" : "false")});
      if (!arch::tensor_parallel_problems(small_recipe(muon).architecture, tp).empty()) continue;
      // Newton–Schulz iterations amplify rounding.
      expect_weights(small_recipe(layout), expected,
                     str(changes[0], " dp ", dp, " tp ", tp, " pp ", pp, " zero ", zero), 1e-9);
    }
  }
}

TEST(TensorParallel, FiveUpdatesEqualOneDevice) {
  for (const std::vector<std::string>& changes : std::vector<std::vector<std::string>>{
           {"optimizer.kind=sgd", "optimizer.lr=0.1", "dropout.residual=0.1"},
           {"architecture=gpt2-tiny", "optimizer.kind=sgd", "optimizer.lr=0.1", "ema=0.9"},
           {"architecture=gemma-2-tiny", "optimizer.kind=sgd", "optimizer.lr=0.1"}}) {
    const Trained one = train_five(small_recipe(changes), nullptr);
    for (const auto& [dp, tp, zero] : std::vector<std::array<int, 3>>{{1, 2, 0}, {1, 4, 0}, {2, 2, 1}, {2, 2, 2}}) {
      std::vector<std::string> layout = changes;
      layout.insert(layout.end(), {str("layout.dp=", dp), str("layout.tp=", tp), str("layout.zero=", zero),
                                   str("layout.sequence=", tp == 4 || zero == 2 ? "true" : "false")});
      const Trained many = train_on_ranks(dp * tp, small_recipe(layout));
      const std::string what = str(changes[0], ": dp ", dp, " tp ", tp, " zero ", zero);
      ASSERT_EQ(one.tensors.size(), many.tensors.size()) << what;
      EXPECT_LE(largest_difference(one, many), 5e-6) << what;
      EXPECT_NEAR(one.losses[4], many.losses[4], 5e-6) << what;
      EXPECT_NEAR(one.norms[4], many.norms[4], 5e-5) << what;
    }
  }
}

TEST(TensorParallel, CheckpointsLoadIntoAnyLayoutAndBackWithTheSameBytes) {
  for (const char* preset :
       {"architecture=gpt2-tiny", "architecture=qwen3-tiny", "architecture=mixtral-tiny", "architecture=mamba-tiny"}) {
    const auto changes = [&](std::vector<std::string> layout) {
      layout.insert(layout.end(), {preset, "ema=0.9", "dtype=bf16"});
      return layout;
    };
    const std::vector<std::string> layouts[] = {
        changes({}),
        changes({"layout.tp=2", "layout.dp=2", "layout.zero=1"}),
        changes({"layout.tp=4", "layout.sequence=true"}),
        changes({"layout.dp=3", "layout.zero=2"}),
        changes({"layout.tp=3"}),
    };
    const Checkpoint first = through(layouts[1], nullptr, 2);
    for (const std::vector<std::string>& layout : layouts) {
      if (layout[0] == "layout.tp=3" && std::string(preset) != "architecture=gpt2-tiny") continue;
      const Checkpoint other = through(layout, &first, 0);
      EXPECT_EQ(bytes_of(first.weights), bytes_of(other.weights)) << preset << " " << layout[0];
      EXPECT_EQ(bytes_of(first.state), bytes_of(other.state)) << preset << " " << layout[0];
    }
  }
}

/// Evaluation, logits and decoding of the architecture on two tensor-parallel ranks, also with two data-parallel ones.
void expect_same_logits(const std::vector<std::string>& architecture) {
  const train::Recipe recipe = small_recipe(architecture);
  std::vector<std::string> divided_changes = architecture;
  divided_changes.insert(divided_changes.end(), {"layout.tp=2", "layout.dp=2"});
  const train::EvaluationData data{
      .batches = 3, .at = [&](int64_t i) { return batch_of(recipe, 100 + i); }, .accuracy = true};
  const Tensor ids = Tensor::from(batch_of(recipe, 1).ids, {recipe.batch, recipe.length}, Device::cpu(1));
  train::Learner single(recipe, Device::cpu(1));
  const std::optional<train::Measured> expected = single.evaluate(data);
  nn::Model whole(recipe.architecture, Device::cpu(1), {.dtype = DType::f64});
  const std::vector<double> logits = whole.logits(ids).to_vector<double>();
  comm::run_local_ranks(4, [&](comm::Communicator& c) {
    const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
    const train::Recipe divided = small_recipe(divided_changes);
    const std::optional<train::Measured> got = train::Learner(divided, Device::cpu(1), own).evaluate(data);
    EXPECT_NEAR(got->loss, expected->loss, 1e-6);
    EXPECT_EQ(got->accuracy->tokens, expected->accuracy->tokens);
    for (const bool sequence : {false, true}) {
      const auto parallel = std::make_shared<nn::TensorParallel>(own, sequence);
      nn::Model model(recipe.architecture, Device::cpu(1), {.dtype = DType::f64, .parallel = parallel});
      const std::vector<double> of_ranks = model.logits(ids).to_vector<double>();
      ASSERT_EQ(of_ranks.size(), logits.size());
      for (size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(of_ranks[i], logits[i], 1e-12);
      nn::ModelCache cache = model.make_cache(recipe.batch, recipe.length);
      const auto vocab = static_cast<size_t>(recipe.architecture.vocab_size);
      for (int64_t s = 0; s < recipe.length; ++s) {
        const Tensor step = model.cached_logits(ids.slice(1, s, 1).contiguous(), cache);
        const std::vector<double> values = step.to_vector<double>();
        for (size_t i = 0; i < vocab; ++i) {  // compares the first row
          ASSERT_NEAR(values[i], logits[static_cast<size_t>(s) * vocab + i], 1e-12);
        }
      }
    }
  });
}

TEST(TensorParallel, EvaluationAndLogitsEqualOneDevice) {
  expect_same_logits({"architecture=gemma-2-tiny"});
  expect_same_logits({"architecture=mamba-tiny"});
  expect_same_logits({"architecture=mamba2-tiny", "architecture.layers[0].pattern[0].mixer.norm_groups=4"});
}

TEST(TensorParallel, RehearsedRanksAgree) {
  for (const char* sequence : {"false", "true"}) {
    const train::Recipe recipe = small_recipe(
        {"architecture=gpt2-tiny", "layout.dp=2", "layout.tp=4", "layout.zero=1", str("layout.sequence=", sequence)});
    comm::FakeWorld world(8);
    for (int rank = 0; rank < 8; ++rank) {
      train::Learner learner(recipe, Device::meta(), world.communicator(rank));
      learner.rehearse_update();
    }
    world.check();
    const auto traffic = world.traffic(0);
    for (const char* label : {"sublayer input", "sublayer output", "loss", "gradients", "weights"}) {
      EXPECT_GT(traffic.contains(label) ? traffic.at(label).bytes : 0, 0) << label;
    }
    EXPECT_EQ(traffic.contains("shared gradients"), std::string(sequence) == "true");
  }
}

TEST(TensorParallel, WhatCannotBeDividedIsRefused) {
  const auto problems = [](const std::vector<std::string>& changes) -> std::string {
    try {
      small_recipe(changes);
    } catch (const arch::SpecError& error) {
      return error.what();
    }
    return "";
  };
  for (const char* preset : {"s4d-tiny", "olmo-2-tiny"}) {
    const std::string text = problems({str("architecture=", preset), "layout.tp=2"});
    EXPECT_NE(text.find("cannot be divided over tensor-parallel ranks"), std::string::npos) << preset << ": " << text;
  }
  EXPECT_NE(problems({"architecture=mamba2-tiny", "layout.tp=2"}).find("a norm over 1 group"), std::string::npos);
  EXPECT_NE(problems({"architecture=mamba2-tiny", "architecture.layers[0].pattern[0].mixer.norm=none",
                      "architecture.layers[0].pattern[0].mixer.groups=2", "layout.tp=3"})
                .find("heads in 2 groups"),
            std::string::npos);
  EXPECT_NE(problems({"layout.tp=2", "dropout.attention=0.1"}).find("dropout.attention"), std::string::npos);
  EXPECT_NE(problems({"layout.sequence=true"}).find("tp is 1"), std::string::npos);
  EXPECT_NE(problems({"layout.tp=1000"}).find("cannot be divided"), std::string::npos);
}

}  // namespace
}  // namespace lamina::testing
