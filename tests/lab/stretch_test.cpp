// Reading beyond the length of training: both readings against plain loops, caching, and what cannot be.
#include "lamina/lab/stretch/stretch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/base/files.h"
#include "lamina/lab/stretch/position_kinds.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace lamina::lab {
namespace {

using lamina::testing::error_of;
using lamina::testing::TemporaryFolder;

nn::Model tiny_model() { return {arch::resolve(arch::load_preset("llama-tiny")), Device::cpu(1), {.seed = 5}}; }

/// −log p of ids[at] from ids[begin … at).
double loss_of(nn::Model& model, const std::vector<text::TokenId>& ids, int64_t begin, int64_t at) {
  const std::vector<int64_t> before(ids.begin() + begin, ids.begin() + at);
  const auto count = static_cast<int64_t>(before.size());
  const auto z = model.logits(Tensor::from(before, {1, count}, Device::cpu(1))).to_vector<float>();
  const size_t last = z.size() - 96;
  double sum = 0;
  for (size_t v = 0; v < 96; ++v) sum += std::exp(static_cast<double>(z[last + v]));
  return std::log(sum) - static_cast<double>(z[last + static_cast<size_t>(ids[static_cast<size_t>(at)])]);
}

TEST(Stretch, BothReadingsPredictTheSameTokensFromWhatTheySayStandsBefore) {
  nn::Model model = tiny_model();
  std::vector<text::TokenId> ids;
  for (int i = 0; i < 80; ++i) ids.push_back((i * i * 7 + i) % 96);
  const ReadingText text = reading_text(ids, 16, 40);
  EXPECT_EQ(text.first, 16);
  EXPECT_EQ(text.count, 32);
  for (const int64_t length : {8, 16}) {
    double side = 0;
    double slide = 0;
    for (int64_t at = 16; at < 48; ++at) {
      side += loss_of(model, ids, 15 + (at - 16) / length * length, at);
      // The first window that ends behind the token: windows begin a quarter apart.
      int64_t begin = 16 - length * 3 / 4;
      while (at - begin > length) begin += length / 4;
      EXPECT_GE(at - begin, length * 3 / 4);
      slide += loss_of(model, ids, begin, at);
    }
    EXPECT_NEAR(std::log(side_by_side_perplexity(model, text, length)), side / 32, 1e-5) << length;
    EXPECT_NEAR(std::log(sliding_perplexity(model, text, length)), slide / 32, 1e-5) << length;
  }
  EXPECT_NE(error_of([&] { reading_text(ids, 64, 64); }).find("needs 128"), std::string::npos);
}

TEST(Stretch, ScalingsReachEveryRotationAndNothingElse) {
  const arch::ArchSpec spec = arch::resolve(arch::load_preset("llama-tiny"));
  ASSERT_TRUE(has_rope(spec));
  EXPECT_FALSE(has_rope(arch::resolve(arch::load_preset("bloom-tiny"))));
  for (const ScalingKind& kind : rope_scalings()) {
    const arch::ArchSpec scaled = with_scaling(spec, kind.at(4.0, 64));
    const auto& layer = std::get<arch::Attention>(scaled.layers[0].pattern[0].mixer);
    EXPECT_NE(std::get<arch::Rope>(*layer.position).scaling, arch::RopeScaling(arch::NoScaling{})) << kind.name;
    EXPECT_EQ(with_scaling(scaled, arch::NoScaling{}), spec) << kind.name;
  }
}

/// A model that is certain of the next digit would find all keys; one that has learned nothing finds none.
TEST(Stretch, PasskeysAreScoredAtTheEndAndWholeOnly) {
  nn::Model model = tiny_model();
  const PasskeyMaker make = task_passkeys({.digits = 3, .words = 4});
  const data::Example example = make(32, 0.5, 1);
  EXPECT_EQ(example.size(), 33);
  for (size_t i = 0; i < 33; ++i) EXPECT_EQ(example.scored[i], i >= 30);
  EXPECT_EQ(make(32, 0.5, 1).tokens, example.tokens);
  EXPECT_NE(make(32, 0.5, 2).tokens, example.tokens);
  EXPECT_EQ(passkey_accuracy(model, make, 32, 0.5, 5), 0.0);
}

class StretchStudy : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 900; ++i) text += "ab cd ef"[(i * i + i / 3) % 8];
    write_text(folder_ / "text.txt", text);
    options_.folder = folder_ / "study";
    options_.data = folder_ / "text.txt";
    options_.length = 8;
    options_.times = 4;
    options_.tokens = 32;
    options_.examples = 2;
    options_.depths = 2;
    options_.kinds = {"learned", "rope", "pi"};
    options_.changes = {"steps=3",
                        "batch=2",
                        "schedule.warmup=1",
                        "architecture.d_model=16",
                        "architecture.layers[0].repeat=1",
                        "architecture.layers[0].pattern[0].ffn.d_ff=16"};
    options_.passkey_changes = options_.changes;
    options_.passkey_changes.push_back("data.task.digits=2");
    options_.passkey_changes.push_back("data.examples=4");
  }
  TemporaryFolder folder_;
  StretchOptions options_;
};

TEST_F(StretchStudy, TrainsReadsAndGoesOnWhereItWasStopped) {
  int updates = 0;
  StretchWatch stopping{
      .progress = [&](const StretchProgress&) { ++updates; }, .row = {}, .stop = [&] { return updates >= 2; }};
  EXPECT_FALSE(stretch(options_, Device::cpu(1), stopping));
  const std::optional<StretchResult> result = stretch(options_, Device::cpu(1), {});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->lengths, (std::vector<int64_t>{8, 16, 32}));
  ASSERT_EQ(result->rows.size(), 3U);
  const StretchRow& learned = result->rows[0];
  EXPECT_TRUE(learned.side_by_side[0] && learned.sliding[0] && learned.passkey[0][1]);
  EXPECT_FALSE(learned.side_by_side[1] || learned.sliding[2] || learned.passkey[1][0]);
  EXPECT_EQ(learned.cannot, "learned positions end at 8");
  const StretchRow& rope = result->rows[1];
  const StretchRow& interpolated = result->rows[2];
  EXPECT_EQ(rope.side_by_side[0], interpolated.side_by_side[0]);  // nothing to scale at the length of training
  EXPECT_NE(rope.side_by_side[2], interpolated.side_by_side[2]);

  // Everything is there: nothing is said to be done, and the numbers are the same.
  int said = 0;
  const auto again =
      stretch(options_, Device::cpu(1), {.progress = [&](const StretchProgress&) { ++said; }, .row = {}, .stop = {}});
  ASSERT_TRUE(again);
  EXPECT_EQ(said, 0);
  EXPECT_EQ(again->rows[2].sliding, interpolated.sliding);
  EXPECT_EQ(again->rows[1].passkey, rope.passkey);

  const auto json = nlohmann::json::parse(stretch_json(*result, options_));
  EXPECT_EQ(json["stretch"]["rows"].size(), 6U);
  EXPECT_EQ(json["stretch"]["passkey"].size(), 9U);
  EXPECT_TRUE(json["stretch"]["rows"][0]["perplexity"][1].is_null());
  EXPECT_EQ(json["variants"][1]["runs"].size(), 1U);
  // The claim is about 2048 tokens of training.
  for (const auto& finding : json["findings"]) {
    if (finding["verdict"].is_null()) continue;
    EXPECT_TRUE(finding["verdict"].get<std::string>().starts_with("at our size: ")) << finding;
  }
  EXPECT_NE(stretch_table(*result).find("learned positions end at 8"), std::string::npos);
}

TEST_F(StretchStudy, AnExistingModelIsReadWithScalings) {
  options_.kinds = {"rope"};
  options_.passkey = false;
  const auto trained = stretch(options_, Device::cpu(1), {});
  ASSERT_TRUE(trained);
  options_.model = trained->rows[0].run;
  options_.folder = folder_ / "model";
  options_.kinds = {"yarn"};
  const auto result = stretch(options_, Device::cpu(1), {});
  ASSERT_TRUE(result);
  ASSERT_EQ(result->rows.size(), 2U);
  EXPECT_EQ(result->rows[0].name, "as_it_is");
  EXPECT_EQ(result->rows[1].name, "yarn");
  EXPECT_EQ(result->rows[0].sliding[0], result->rows[1].sliding[0]);
  EXPECT_NE(result->rows[0].sliding[2], result->rows[1].sliding[2]);
}

TEST_F(StretchStudy, EverythingIsCheckedBeforeTheFirstUpdate) {
  int updates = 0;
  const StretchWatch watch{.progress = [&](const StretchProgress&) { ++updates; }, .row = {}, .stop = {}};
  options_.passkey_changes.push_back("data.task.digits=20");  // more than a sequence of 8 holds
  const std::string said = error_of([&] { stretch(options_, Device::cpu(1), watch); });
  EXPECT_NE(said.find("passkey"), std::string::npos) << said;
  options_.changes.push_back("architecture.layers[0].pattern[0].mixer.n_hedas=2");
  options_.passkey_changes.push_back("stps=2");
  const std::string both = error_of([&] { stretch(options_, Device::cpu(1), watch); });
  EXPECT_NE(both.find("did you mean n_heads?"), std::string::npos) << both;
  EXPECT_EQ(both.find("did you mean n_heads?"), both.rfind("did you mean n_heads?")) << both;
  EXPECT_NE(both.find("did you mean steps?"), std::string::npos) << both;
  EXPECT_EQ(updates, 0);
}

TEST_F(StretchStudy, AFailedTrainingTakesNothingElseAway) {
  options_.kinds = {"rope"};
  options_.passkey_changes.insert(options_.passkey_changes.end(),
                                  {"optimizer.kind=sgd", "optimizer.lr=1e30", "clip=0", "steps=5"});
  for (int time = 0; time < 2; ++time) {  // and the failure is not kept as a measurement
    const auto result = stretch(options_, Device::cpu(1), {});
    ASSERT_TRUE(result);
    const StretchRow& row = result->rows[0];
    EXPECT_TRUE(row.side_by_side[2] && row.sliding[2]);
    EXPECT_TRUE(row.cannot.empty());
    EXPECT_FALSE(row.failed.empty());
    EXPECT_FALSE(row.passkey_cannot.empty());
  }
}

TEST_F(StretchStudy, WhatCannotBeIsSaid) {
  options_.kinds = {"ropes"};
  options_.times = 0;
  const std::string said = error_of([&] { stretch(options_, Device::cpu(1), {}); });
  EXPECT_NE(said.find("did you mean rope?"), std::string::npos) << said;
  EXPECT_NE(said.find("--times"), std::string::npos) << said;
  options_.times = 4;
  options_.kinds = {"rope"};
  options_.tokens = 1000;
  EXPECT_NE(error_of([&] { stretch(options_, Device::cpu(1), {}); }).find("give a longer text"), std::string::npos);
  options_.data = folder_ / "none.txt";
  EXPECT_NE(error_of([&] { stretch(options_, Device::cpu(1), {}); }).find("none.txt: is not there"), std::string::npos);
  options_.data.clear();
  EXPECT_NE(error_of([&] { stretch(options_, Device::cpu(1), {}); }).find("--data"), std::string::npos);
}

}  // namespace
}  // namespace lamina::lab
