// Encoder–decoders with data parallel ranks and ZeRO against one device: loss, norm and every named gradient in f64,
// five updates, bit-identical ordered sums, rehearsals.
#include "lamina/comm/fake.h"
#include "parallel/first_update.h"
#include "parallel/run_support.h"

namespace lamina::testing {
namespace {

std::vector<std::string> with(std::vector<std::string> changes, const std::vector<std::string>& more) {
  changes.insert(changes.end(), more.begin(), more.end());
  return changes;
}

const std::vector<std::string> kCommon{"objective.kind=span", "dropout.residual=0.1", "dropout.embedding=0.1"};

TEST(EncoderDecoderRanks, LossNormAndEveryGradientEqualOneDeviceInF64) {
  for (const char* preset : {"bart-tiny", "t5-encoder-decoder-tiny"}) {
    const std::vector<std::string> changes = with({str("architecture=", preset)}, kCommon);
    const First expected = single_device(small_recipe(changes));
    for (const std::vector<std::string>& layout : std::vector<std::vector<std::string>>{
             {"layout.dp=2"},
             {"layout.dp=5", "layout.micro_batch=1"},
             {"layout.dp=4", "layout.order=ordered"},
             {"layout.dp=3", "layout.zero=3"},
             {"layout.dp=2", "layout.zero=3", "layout.micro_batch=2", "layout.recompute=selective"},
             {"layout.dp=2", "layout.zero=3", "layout.micro_batch=3", "checkpointing=true"}}) {
      compare(small_recipe(with(changes, layout)), expected, str(preset, " ", layout[0], " ", layout.back()));
    }
  }
}

TEST(EncoderDecoderRanks, WeightsAfterFiveUpdatesEqualOneDeviceInF64) {
  for (const char* preset : {"bart-tiny", "t5-encoder-decoder-tiny"}) {
    for (const auto& [optimizer, tolerance] : std::vector<std::pair<std::vector<std::string>, double>>{
             {{"optimizer.kind=sgd", "optimizer.lr=0.1"}, 1e-12}, {{"optimizer.kind=muon"}, 1e-9}}) {
      const std::vector<std::string> changes = with(with({str("architecture=", preset)}, kCommon), optimizer);
      const Weights expected = single_device_weights(small_recipe(changes));
      for (const int zero : {0, 1, 2, 3}) {
        expect_weights(small_recipe(with(changes, {"layout.dp=3", str("layout.zero=", zero)})), expected,
                       str(preset, " ", optimizer[0], " zero ", zero), tolerance);
      }
    }
  }
}

TEST(EncoderDecoderRanks, OrderedRunsHaveTheSameBitsOnAnyNumberOfRanks) {
  const std::vector<std::string> changes = with({"architecture=bart-tiny", "layout.order=ordered"}, kCommon);
  const Trained one = train_five(small_recipe(changes), nullptr);
  for (const auto& [ranks, zero] : std::vector<std::pair<int, int>>{{2, 0}, {4, 1}, {4, 2}, {8, 3}}) {
    const train::Recipe recipe = small_recipe(with(changes, {str("layout.dp=", ranks), str("layout.zero=", zero)}));
    EXPECT_EQ(first_difference(one, train_on_ranks(ranks, recipe)), "") << ranks << " ranks, zero " << zero;
  }
}

TEST(EncoderDecoderRanks, RehearsedRanksAgree) {
  for (const int zero : {0, 1, 2, 3}) {
    const train::Recipe recipe =
        small_recipe(with(kCommon, {"architecture=bart-tiny", "layout.dp=3", str("layout.zero=", zero)}));
    comm::FakeWorld world(3);
    for (int rank = 0; rank < 3; ++rank) {
      train::Learner learner(recipe, Device::meta(), world.communicator(rank));
      learner.rehearse_update();
    }
    world.check();
  }
}

}  // namespace
}  // namespace lamina::testing
