// Measurements beyond the training length: both readings against plain loops, studies, caching and errors.
#include "lamina/lab/stretch/stretch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/base/files.h"
#include "lamina/lab/report/report.h"
#include "lamina/lab/run/run_study.h"
#include "lamina/lab/stretch/options.h"
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

TEST(Stretch, BothReadingsPredictTheSameTokensWithTheirOwnContext) {
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
      // The first window that ends after the token: windows begin a quarter apart.
      int64_t begin = 16 - length * 3 / 4;
      while (at - begin > length) begin += length / 4;
      EXPECT_GE(at - begin, length * 3 / 4);
      slide += loss_of(model, ids, begin, at);
    }
    EXPECT_NEAR(std::log(non_overlapping_perplexity(model, text, length)), side / 32, 1e-5) << length;
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
    options_.data = folder_ / "text.txt";
    options_.length = 8;
    options_.kinds = {"learned", "rope", "pi"};
    options_.changes = {"steps=3",
                        "batch=2",
                        "schedule.warmup=1",
                        "architecture.d_model=16",
                        "architecture.layers[0].repeat=1",
                        "architecture.layers[0].pattern[0].ffn.d_ff=16"};
    StretchSettings& settings = options_.settings;
    settings.times = 4;
    settings.tokens = 32;
    settings.examples = 2;
    settings.depths = 2;
    settings.passkey_set = options_.changes;
    settings.passkey_set.insert(settings.passkey_set.end(), {"data.task.digits=2", "data.examples=4"});
  }

  /// As `lamina stretch`: the study is written and read back, so that every rule is checked.
  Study study() const { return read_study(write_study(stretch_study(options_)), "stretch"); }
  Results run(const Study& study, const StudyWatcher& watcher = {}, const std::string& name = "study") const {
    return run_study(study, {.folder = folder_ / name, .command = "test", .watcher = watcher, .preparing = {}});
  }
  Results run(const StudyWatcher& watcher = {}, const std::string& name = "study") const {
    return run(study(), watcher, name);
  }

  TemporaryFolder folder_;
  StretchOptions options_;
};

TEST_F(StretchStudy, TrainsMeasuresAndResumes) {
  int runs = 0;
  const Results stopped = run({.on_progress = {},
                               .on_run = [&](const RunReport&) { ++runs; },
                               .on_stage = {},
                               .stop = [&] { return runs >= 3; }});
  EXPECT_FALSE(stopped.complete);
  EXPECT_FALSE(stopped.stretch);
  const Results results = run();
  EXPECT_TRUE(results.complete);
  ASSERT_TRUE(results.stretch);
  EXPECT_EQ(results.stretch->lengths, (std::vector<int64_t>{8, 16, 32}));
  ASSERT_EQ(results.stretch->rows.size(), 3U);
  const StretchRow& rope = results.stretch->rows[0];
  const StretchRow& interpolated = results.stretch->rows[1];
  const StretchRow& learned = results.stretch->rows[2];
  EXPECT_EQ(learned.variant, "learned");
  EXPECT_TRUE(learned.non_overlapping[0] && learned.sliding[0] && learned.passkey[0][1]);
  EXPECT_FALSE(learned.non_overlapping[1] || learned.sliding[2] || learned.passkey[1][0]);
  EXPECT_EQ(learned.cannot, "learned positions end at 8");
  EXPECT_FALSE(learned.failed);
  EXPECT_EQ(rope.non_overlapping[0], interpolated.non_overlapping[0]);  // a factor of 1 changes nothing
  EXPECT_NE(rope.non_overlapping[2], interpolated.non_overlapping[2]);

  // The results have the schema of every study, with the scaling as a variant without runs.
  const auto json = nlohmann::json::parse(read_text(folder_ / "study/results.json"));
  EXPECT_EQ(json["mode"], "stretch");
  EXPECT_EQ(json["stretch"]["rows"].size(), 6U);
  EXPECT_EQ(json["stretch"]["passkey"].size(), 9U);
  EXPECT_TRUE(json["stretch"]["rows"][4]["perplexity"][1].is_null());
  EXPECT_EQ(json["variants"][0]["runs"].size(), 1U);
  EXPECT_EQ(json["variants"][0]["summary"]["best_loss"]["mark"], "base");
  EXPECT_EQ(json["variants"][1]["name"], "pi");
  EXPECT_EQ(json["variants"][1]["runs"].size(), 0U);
  EXPECT_EQ(json["variants"][1]["architecture"]["position"]["scaling"]["kind"], "linear");
  // One trained model has no interval.
  for (const auto& finding : json["findings"]) {
    if (finding["verdict"].is_null()) continue;
    EXPECT_EQ(finding["verdict"], "cannot tell") << finding;
  }
  EXPECT_NE(report_text(json.dump(), "x").find("learned positions end at 8"), std::string::npos);
}

TEST_F(StretchStudy, FinishedMeasurementsAreReadFromTheFolder) {
  const Results first = run();
  size_t trained = 0;
  size_t measured = 0;
  const Results again = run(load_study(folder_ / "study"),  // the same call as `lamina compare FOLDER`
                            {.on_progress = {},
                             .on_run = [&](const RunReport& report) { trained += report.outcome.cached ? 0 : 1; },
                             .on_stage = [&](const std::string&) { ++measured; },
                             .stop = {}});
  EXPECT_EQ(trained + measured, 0U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(again.stretch->rows[i].sliding, first.stretch->rows[i].sliding);
    EXPECT_EQ(again.stretch->rows[i].passkey, first.stretch->rows[i].passkey);
  }
}

TEST_F(StretchStudy, AnExistingModelIsMeasuredWithScalings) {
  options_.kinds = {"rope"};
  options_.settings.passkey = false;
  const Results trained = run();
  options_.settings.model = folder_ / ("study/runs/" + trained.variants[0].runs[0].folder);
  options_.kinds = {"yarn"};
  const Results results = run({}, "model");
  ASSERT_TRUE(results.stretch);
  ASSERT_EQ(results.stretch->rows.size(), 2U);
  EXPECT_EQ(results.stretch->rows[0].variant, "unscaled");
  EXPECT_EQ(results.stretch->rows[1].variant, "yarn");
  EXPECT_TRUE(results.variants[0].runs.empty());
  EXPECT_EQ(results.stretch->rows[0].sliding[0], results.stretch->rows[1].sliding[0]);
  EXPECT_NE(results.stretch->rows[0].sliding[2], results.stretch->rows[1].sliding[2]);
}

TEST_F(StretchStudy, EverythingIsCheckedBeforeTheFirstUpdate) {
  options_.settings.passkey_set.push_back("data.task.digits=20");  // more than a sequence of 8 holds
  const std::string said = error_of([&] { study(); });
  EXPECT_NE(said.find("passkey"), std::string::npos) << said;
  options_.changes.push_back("architecture.layers[0].pattern[0].mixer.n_hedas=2");
  options_.settings.passkey_set.push_back("stps=2");
  const std::string both = error_of([&] { study(); });
  EXPECT_NE(both.find("did you mean n_heads?"), std::string::npos) << both;
  EXPECT_EQ(both.find("did you mean n_heads?"), both.rfind("did you mean n_heads?")) << both;
  EXPECT_NE(both.find("did you mean steps?"), std::string::npos) << both;
}

TEST_F(StretchStudy, AFailedTrainingLeavesTheOtherResults) {
  options_.kinds = {"rope"};
  options_.settings.passkey_set.insert(options_.settings.passkey_set.end(),
                                       {"optimizer.kind=sgd", "optimizer.lr=1e30", "clip=0", "steps=5"});
  for (int time = 0; time < 2; ++time) {  // a failure is not cached as a measurement
    const Results results = run();
    ASSERT_TRUE(results.stretch);
    const StretchRow& row = results.stretch->rows[0];
    EXPECT_TRUE(row.non_overlapping[2] && row.sliding[2]);
    EXPECT_TRUE(row.cannot.empty());
    EXPECT_TRUE(row.failed);
    EXPECT_FALSE(row.passkey_cannot.empty());
  }
}

TEST_F(StretchStudy, BaseIsRopeUnlessOnlyOtherKindsAreNamed) {
  EXPECT_EQ(study().base_name, "rope");
  options_.kinds = {"window", "yarn"};
  EXPECT_EQ(study().base_name, "rope");
  options_.kinds = {"window", "alibi", "none"};
  const Study other = study();
  EXPECT_EQ(other.base_name, "alibi");
  ASSERT_EQ(other.variants.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<arch::Alibi>(passkey_study(other).base.position));
}

TEST_F(StretchStudy, InvalidOptionsAreErrors) {
  options_.kinds = {"ropes"};
  EXPECT_NE(error_of([&] { study(); }).find("did you mean rope?"), std::string::npos);
  options_.kinds = {"rope"};
  options_.settings.times = 0;
  EXPECT_NE(error_of([&] { study(); }).find("stretch.times"), std::string::npos);
  options_.settings.times = 4;
  Study wrong = study();
  wrong.stretch->scalings = {"yarm"};
  EXPECT_NE(error_of([&] { read_study(write_study(wrong), "x"); }).find("did you mean yarn?"), std::string::npos);
  options_.settings.tokens = 1000;
  EXPECT_NE(error_of([&] { run(); }).find("give a longer text"), std::string::npos);
  options_.data = folder_ / "none.txt";
  EXPECT_NE(error_of([&] { run(); }).find("none.txt: does not exist"), std::string::npos);
  options_.data.clear();
  EXPECT_NE(error_of([&] { run(); }).find("data.train"), std::string::npos);
}

}  // namespace
}  // namespace lamina::lab
