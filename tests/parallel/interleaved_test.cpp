// Interleaved pipelines against one device: the schedule, loss, norm and every named gradient in f64, five updates,
// random architectures, evaluation, checkpoints, rehearsals, rules; every message is needed.
#include <limits>
#include <set>

#include "lamina/arch/resolve.h"
#include "lamina/comm/fake.h"
#include "lamina/train/interleaved.h"
#include "parallel/first_update.h"
#include "parallel/muted_communicator.h"
#include "parallel/random_architecture.h"
#include "parallel/run_support.h"

namespace lamina::testing {
namespace {

using Kind = train::StageTick::Kind;

std::vector<std::string> with(std::vector<std::string> changes, const std::vector<std::string>& more) {
  changes.insert(changes.end(), more.begin(), more.end());
  return changes;
}

std::vector<std::string> layout(int dp, int tp, int pp, int chunks, int zero = 0) {
  return {str("layout.dp=", dp),     str("layout.tp=", tp),         str("layout.pp=", pp),
          str("layout.zero=", zero), "layout.schedule=interleaved", str("layout.interleave=", chunks),
          "layout.micro_batch=2"};
}

/// Seven layers, so that chunks differ.
std::vector<std::string> deep(const std::string& preset) {
  return {"architecture=" + preset, "architecture.layers[0].repeat=7", "optimizer.kind=sgd", "optimizer.lr=0.1"};
}

TEST(Interleaved, TheScheduleRunsEveryChunkOnceAfterItsInput) {
  for (const int stages : {2, 3, 4, 8}) {
    for (const int chunks : {1, 2, 3}) {
      for (const int64_t passes : {1, 2, 3, 4, 8, 9, 16}) {
        const auto ticks = train::interleaved_schedule(stages, chunks, passes);
        std::set<std::tuple<Kind, int64_t, int>> done;  // by kind, pass and number of the chunk among all
        const int last = stages * chunks - 1;
        for (const auto& tick : ticks) {
          const auto before = done;
          ASSERT_EQ(static_cast<int>(tick.size()), stages);
          for (int stage = 0; stage < stages; ++stage) {
            const auto& [kind, at] = tick[static_cast<size_t>(stage)];
            if (kind == Kind::idle) continue;
            const int place = at.chunk * stages + stage;
            EXPECT_TRUE(done.insert({kind, at.pass, place}).second) << "twice";
            if (kind == Kind::forward) {
              EXPECT_TRUE(place == 0 || before.contains({Kind::forward, at.pass, place - 1}));
            } else {
              EXPECT_TRUE(before.contains({Kind::forward, at.pass, place}));
              EXPECT_TRUE(place == last || before.contains({Kind::backward, at.pass, place + 1}));
            }
          }
        }
        EXPECT_EQ(static_cast<int64_t>(done.size()), 2 * passes * stages * chunks);
        // A stage waits for 2 (stages − 1) chunks: the bubble is 1 / chunks of that without interleaving.
        if (passes % stages == 0) {
          EXPECT_EQ(static_cast<int64_t>(ticks.size()), 2 * chunks * passes + 2 * (stages - 1))
              << stages << " stages, " << chunks << " chunks, " << passes << " passes";
        }
      }
    }
  }
}

TEST(Interleaved, LossNormAndEveryGradientEqualOneDeviceInF64) {
  for (const std::vector<std::string>& changes : std::vector<std::vector<std::string>>{
           deep("llama-tiny"),
           with(deep("gpt2-tiny"), {"dropout.residual=0.2", "dropout.embedding=0.1"}),  // tied, learned positions
           with(deep("gpt2-tiny"), {"checkpointing=true", "accumulation=3"}),
           with(deep("mamba-tiny"), {"accumulation=1"})}) {
    const train::Recipe single = small_recipe(changes);
    const First expected = single_device(single);
    for (const auto& [dp, tp, pp, chunks] :
         std::vector<std::array<int, 4>>{{1, 1, 2, 2}, {1, 1, 2, 3}, {1, 1, 3, 2}, {2, 1, 2, 2}, {1, 2, 2, 2}}) {
      if (tp > 1 && !arch::tensor_parallel_problems(single.architecture, tp).empty()) continue;
      compare(small_recipe(with(changes, layout(dp, tp, pp, chunks))), expected,
              str(changes[0], " dp ", dp, " tp ", tp, " pp ", pp, " chunks ", chunks));
    }
    // One micro-batch of one pass goes around alone.
    compare(small_recipe(with(with(changes, layout(1, 1, 3, 2)), {"layout.micro_batch=12"})), expected, "one pass");
    // Divided weights.
    compare(small_recipe(with(changes, layout(2, 1, 2, 2, 3))), expected, "zero 3");
  }
}

TEST(Interleaved, RandomArchitecturesAndLayoutsHaveTheGradientsOfOneDevice) {
  int compared = 0;
  for (uint64_t seed = 7000; compared < 16 && seed < 7400; ++seed) {
    Draw draw(seed);
    const int tp = static_cast<int>(1 + draw.below(2));
    train::Recipe recipe = small_recipe({"batch=8", "length=7", "dropout.residual=0.1"});
    try {
      arch::ArchSpec spec = random_architecture(draw, tp);
      for (arch::LayerGroup& group : spec.layers) group.repeat = 2;
      recipe.architecture = arch::resolve(spec, "random");
    } catch (const arch::SpecError&) {
      continue;  // a combination that no model has
    }
    if (has_experts(recipe.architecture)) continue;  // their balancing loss depends on micro-batches
    if (!arch::tensor_parallel_problems(recipe.architecture, tp).empty()) continue;
    ++compared;
    const First expected = single_device(recipe);
    recipe.layout.tp = tp;
    recipe.layout.pp = 2;
    recipe.layout.schedule = train::PipelineSchedule::interleaved;
    recipe.layout.interleave = 2;
    recipe.layout.dp = 1 + draw.below(2);
    recipe.layout.zero = draw.coin() ? 3 : 0;
    recipe.layout.micro_batch = 1 + draw.below(4);
    recipe.layout.sequence = tp > 1 && draw.coin();
    if (draw.coin()) recipe.layout.recompute = train::Recompute::selective;
    if (draw.coin()) recipe.layout.order = train::SumOrder::ordered;
    compare(recipe, expected, str("seed ", seed, " tp ", tp, " dp ", recipe.layout.dp));
  }
  EXPECT_EQ(compared, 16);
}

TEST(Interleaved, OrderedSumsHaveTheBitsOf1F1BAndOfAnyNumberOfRanks) {
  // The norm is a sum over stages, which have other layers than with 1F1B: no clipping.
  for (const std::vector<std::string>& changes : std::vector<std::vector<std::string>>{
           with(deep("llama-tiny"), {"clip=1000"}), with(deep("gpt2-tiny"), {"clip=1000", "accumulation=3"})}) {
    // Stages sum the gradients of a tied table before data-parallel ranks do, so their bits depend on the ranks.
    const bool tied = changes[0] == "architecture=gpt2-tiny";
    Trained first;
    for (const auto& [dp, zero] : std::vector<std::array<int, 2>>{{1, 0}, {2, 2}, {2, 3}, {4, 1}}) {
      const auto run = [&, dp = dp, zero = zero](std::vector<std::string> schedule) {
        schedule.insert(schedule.end(), {"layout.pp=2", "layout.order=ordered", str("layout.dp=", dp),
                                         str("layout.zero=", zero), "layout.micro_batch=2"});
        Trained trained = train_on_ranks(2 * dp, small_recipe(with(changes, schedule)));
        trained.norms.assign(5, 0.0);
        return trained;
      };
      const Trained straight = run({});
      const Trained interleaved = run({"layout.schedule=interleaved", "layout.interleave=2"});
      const std::string what = str(changes[0], " dp ", dp, " zero ", zero);
      EXPECT_EQ(first_difference(straight, interleaved), "") << what;
      if (dp == 1) first = interleaved;
      if (!tied) {
        EXPECT_EQ(first_difference(first, interleaved), "") << what << " and one data-parallel rank";
      }
    }
  }
}

TEST(Interleaved, OrderedSumsOfATableThatSeveralChunksUse) {
  const std::vector<std::string> changes{"architecture=t5-tiny", "architecture.layers[0].repeat=4", "accumulation=3",
                                         "dropout.residual=0.1"};
  const First expected = single_device(small_recipe(changes));
  for (const auto& [dp, zero] : std::vector<std::array<int, 2>>{{1, 0}, {2, 0}, {2, 3}}) {
    compare(small_recipe(with(with(changes, layout(dp, 1, 2, 2, zero)), {"layout.order=ordered"})), expected,
            str("dp ", dp, " zero ", zero));
  }
}

TEST(Interleaved, WeightsAfterFiveUpdatesEqualOneDeviceInF64) {
  for (const char* preset : {"llama-tiny", "gpt2-tiny"}) {
    const std::vector<std::string> changes = with(deep(preset), {"dropout.residual=0.1"});
    const Weights expected = single_device_weights(small_recipe(changes));
    for (const auto& [dp, tp, pp, chunks, zero] :
         std::vector<std::array<int, 5>>{{1, 1, 2, 3, 0}, {2, 1, 2, 2, 1}, {2, 1, 3, 2, 2}, {2, 2, 2, 2, 2}}) {
      expect_weights(small_recipe(with(changes, layout(dp, tp, pp, chunks, zero))), expected,
                     str(preset, " dp ", dp, " tp ", tp, " pp ", pp, " chunks ", chunks, " zero ", zero));
    }
  }
}

TEST(Interleaved, CheckpointsPassThroughOtherLayouts) {
  const std::vector<std::string> changes = with(deep("gpt2-tiny"), {"ema=0.9"});
  const Checkpoint start = through(with(changes, layout(2, 1, 2, 2, 1)), nullptr, 2);
  const Checkpoint other = through(changes, &start, 0);
  const Checkpoint again = through(with(changes, layout(1, 1, 3, 2)), &other, 0);
  EXPECT_TRUE(bytes_of(start.weights) == bytes_of(other.weights));
  EXPECT_TRUE(bytes_of(start.state) == bytes_of(other.state));
  EXPECT_TRUE(bytes_of(start.weights) == bytes_of(again.weights));
  EXPECT_TRUE(bytes_of(start.state) == bytes_of(again.state));
}

TEST(Interleaved, EvaluationHasTheResultOfOneDevice) {
  const train::Recipe recipe = small_recipe(deep("gpt2-tiny"));
  for (const bool accuracy : {false, true}) {
    const train::EvaluationData data{
        .batches = 3, .at = [&](int64_t i) { return batch_of(recipe, 100 + i); }, .accuracy = accuracy};
    const std::optional<train::Measured> expected = train::Learner(recipe, Device::cpu(1)).evaluate(data);
    const train::Recipe divided = small_recipe(with(deep("gpt2-tiny"), layout(2, 1, 3, 2)));
    comm::run_local_ranks(6, [&](comm::Communicator& c) {
      const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
      const std::optional<train::Measured> got = train::Learner(divided, Device::cpu(1), own).evaluate(data);
      EXPECT_NEAR(got->loss, expected->loss, 1e-6);
    });
  }
}

TEST(Interleaved, EveryMessageIsNeeded) {
  const Trained one = train_five(small_recipe(deep("gpt2-tiny")), nullptr);
  const train::Recipe recipe = small_recipe(with(deep("gpt2-tiny"), layout(1, 1, 3, 2)));
  const auto error_without = [&](const std::string& label) {
    std::atomic<int> skipped{0};
    const Trained muted = train_on_ranks(3, recipe, [&](std::shared_ptr<comm::Communicator> inner) {
      return std::make_shared<MutedCommunicator>(std::move(inner), label, skipped);
    });
    EXPECT_EQ(skipped > 0, !label.empty()) << label;
    return std::max(std::abs(one.norms[4] - muted.norms[4]), largest_difference(one, muted));
  };
  EXPECT_LE(error_without(""), 2e-5);
  for (const char* label : {"pipeline/from lower", "pipeline/from higher", "shared gradients"}) {
    EXPECT_GT(error_without(label), 1e-4) << label << " is left out";
  }
}

TEST(Interleaved, RehearsedStagesAgree) {
  const train::Recipe recipe = small_recipe(with(deep("llama-tiny"), layout(2, 2, 3, 2, 2)));
  comm::FakeWorld world(12);
  for (int rank = 0; rank < 12; ++rank) {
    train::Learner learner(recipe, Device::meta(), world.communicator(rank));
    learner.rehearse_update();
  }
  world.check();
}

TEST(Interleaved, RulesNameWhatIsWrong) {
  const auto problems = [](const std::vector<std::string>& changes) -> std::string {
    try {
      small_recipe(changes);
    } catch (const arch::SpecError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(problems({"layout.schedule=interleaved"}).find("interleave"), std::string::npos);
  EXPECT_NE(problems({"layout.pp=2", "layout.interleave=2"}).find("1f1b"), std::string::npos);
  EXPECT_NE(problems(with(deep("llama-tiny"), layout(1, 1, 4, 2))).find("7 layers for 4"), std::string::npos);
}

}  // namespace
}  // namespace lamina::testing
