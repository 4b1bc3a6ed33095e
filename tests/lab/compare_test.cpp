// Whole studies of tiny models: repeated, interrupted, with invalid settings, and with differences that must be found.
#include "lamina/lab/run/run_study.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lamina/base/files.h"
#include "lamina/data/synthetic.h"
#include "lamina/lab/report/report.h"
#include "lamina/lab/run/search.h"
#include "lamina/lab/run/untrained.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace lamina::lab {
namespace {

using lamina::testing::TemporaryFolder;
using Json = nlohmann::ordered_json;

class CompareTest : public ::testing::Test {
 protected:
  void SetUp() override { write_text(folder_ / "play.txt", data::synthetic_play(8000, 3)); }

  /// A study of one-layer models on a short play. `rest` holds further keys of the study file.
  Study study(const std::string& rest, const std::vector<std::string>& changes = {}) const {
    std::vector<std::string> all = {"data.train=" + (folder_ / "play.txt"),
                                    "batch=4",
                                    "length=16",
                                    "steps=30",
                                    "eval_every=15",
                                    "save_every=0",
                                    "optimizer.lr=0.01"};
    all.insert(all.end(), changes.begin(), changes.end());
    return read_study(R"({"base": {"base": "llama-tiny", "set": {"layers[0].repeat": 1}}, "decode": false,
                          "threads": 1, "jobs": 1, )" +
                          rest + "}",
                      "test", all);
  }

  Results run(const Study& study, const std::string& name, const StudyWatcher& watcher = {}) const {
    return run_study(study, {.folder = folder_ / name, .command = "test", .watcher = watcher, .preparing = {}});
  }

  TemporaryFolder folder_;
};

/// Every number of the runs that must repeat.
std::string numbers(const Results& results) {
  Json json;
  for (const VariantResult& variant : results.variants) {
    for (const RunResult& run : variant.runs) {
      json[variant.variant.name].push_back({run.seed, *run.best_loss, *run.final_loss, *run.bits_per_byte,
                                            run.curve_loss, run.evaluation_loss, run.spikes, run.gradient_outliers});
    }
  }
  return json.dump();
}

TEST_F(CompareTest, RepeatedFromItsResultsItGivesTheSameBits) {
  Study asked = study(R"("variants": [{"name": "layer", "set": ["norm.kind=layer"]}], "seeds": 3)");
  const Results first = run(asked, "first");
  EXPECT_TRUE(first.complete);
  ASSERT_EQ(first.variants.size(), 2u);
  EXPECT_EQ(first.variants[1].runs.size(), 3u);
  Study again = load_study(folder_ / "first/results.json");
  again.jobs = 2;  // beside one another nothing changes either
  const Results second = run(again, "second");
  EXPECT_EQ(numbers(first), numbers(second));
  // Seeds are different runs, and the same seed gives both variants the same batches but not the same losses.
  EXPECT_NE(first.variants[0].runs[0].best_loss, first.variants[0].runs[1].best_loss);
  EXPECT_NE(first.variants[0].runs[0].best_loss, first.variants[1].runs[0].best_loss);
}

TEST_F(CompareTest, TuningChoosesOnOtherSeedsAndTheRunsUseIt) {
  const std::string variants = R"("variants": [{"name": "layer", "set": ["norm.kind=layer"]}], "seeds": 2)";
  const Study tuned = study(variants + R"(, "tuning": {"learning_rates": [1e-5, 1e-4, 2e-2], "seeds": [7, 8]})");
  EXPECT_EQ(run_count(tuned), 2u * (2 + 3 * 2));
  const Results results = run(tuned, "tuned");
  ASSERT_EQ(results.variants.size(), 2u);
  for (const VariantResult& variant : results.variants) {
    ASSERT_EQ(variant.trials.size(), 3u);
    EXPECT_EQ(variant.chosen_trial, 2u);  // 30 steps at 1e-4 learn nearly nothing
    EXPECT_LT(*variant.trials[2].loss, *variant.trials[0].loss);
    EXPECT_EQ(variant.variant.recipe, std::vector<std::string>{"optimizer.lr=0.02"});
  }
  EXPECT_EQ(numbers(results), numbers(run(study(variants, {"optimizer.lr=0.02"}), "fixed")));
  bool warned = false;
  for (const Finding& finding : results.findings) {
    warned = warned || finding.text.find("0.02, is the highest that was tried") != std::string::npos;
  }
  EXPECT_TRUE(warned);
  EXPECT_NE(report_text(results_json(results), "x").find("layer: tuned optimizer.lr=0.02"), std::string::npos);
  // Repeated from its results, the tuning runs again and chooses the same.
  EXPECT_EQ(numbers(results), numbers(run(load_study(folder_ / "tuned/results.json"), "again")));
}

TEST_F(CompareTest, ABudgetGivesEveryVariantItsOwnUpdates) {
  const std::string variants = R"("variants": [
    {"name": "wide", "set": ["layers[0].pattern[0].ffn.d_ff=224"], "recipe": ["batch=8"]}], "seeds": 2)";
  const auto steps_of = [](const VariantResult& variant) { return variant.runs[0].evaluation_step.back(); };
  const auto with = [&](const char* unit, double amount) {
    return study(variants + str(R"(, "budget": {"unit": ")", unit, R"(", "amount": )", amount, "}"));
  };
  // 4 rows of 16 tokens, and 8.
  const Results tokens = run(with("tokens", 1290), "tokens");
  EXPECT_EQ(steps_of(tokens.variants[0]), 20);
  EXPECT_EQ(steps_of(tokens.variants[1]), 10);
  EXPECT_EQ(tokens.variants[0].runs[0].evaluation_step.size(), tokens.variants[1].runs[0].evaluation_step.size());
  const Results flops = run(with("flops", 30.5 * tokens.variants[0].training_flops / 20), "flops");
  EXPECT_EQ(steps_of(flops.variants[0]), 30);
  EXPECT_NEAR(flops.variants[1].training_flops / flops.variants[0].training_flops, 1, 0.1);
  EXPECT_LE(flops.variants[1].training_flops, flops.variants[0].training_flops);
  EXPECT_NE(flops.findings[0].text.find(" more parameters, at equal training FLOPs: "), std::string::npos)
      << flops.findings[0].text;
  const std::string page = report_html(results_json(flops), "x");
  EXPECT_NE(page.find("training FLOPs per run, "), std::string::npos);
  // The study stores updates that were computed from measured speeds, so a second run is bit-identical.
  const Results seconds = run(with("seconds", 0.1), "seconds");
  const Study again = load_study(folder_ / "seconds/results.json");
  EXPECT_EQ(again.budget->steps, seconds.study.budget->steps);
  EXPECT_EQ(numbers(seconds), numbers(run(again, "again")));
  EXPECT_NE(lamina::testing::error_of([&] { run(with("tokens", 3), "nothing"); }).find("0 updates of base"),
            std::string::npos);
}

TEST_F(CompareTest, TuningSeedsMayNotBeReportedSeeds) {
  const std::string message = lamina::testing::error_of([&] {
    study(R"("variants": [{"name": "layer", "set": ["norm.kind=layer"]}], "seeds": 3,
             "tuning": {"learning_rates": [1e-3, 1e-2], "seeds": [101, 2]})");
  });
  EXPECT_NE(message.find("2 is also a seed of the study"), std::string::npos) << message;
}

TEST(UntrainedTest, CountsAndReadsWhatEachArchitectureCan) {
  const Study study = read_study(R"({"base": {"base": "gpt2-tiny", "set": {"context": 16}},
                                     "variants": [{"name": "rope", "set": ["position.kind=rope"]}]})",
                                 "test");
  const std::vector<UntrainedVariant> variants = run_untrained(study, {8, 40}, 300, Device::cpu(1));
  ASSERT_EQ(variants.size(), 2u);
  // Only the table of learned positions differs: 16 rows of d_model.
  EXPECT_EQ(variants[0].parameters - variants[1].parameters, 16 * study.base.d_model);
  for (const UntrainedVariant& variant : variants) {
    ASSERT_TRUE(variant.losses[0].loss) << variant.losses[0].cannot;
    EXPECT_NEAR(*variant.losses[0].loss, std::log(300.0), 0.5);  // untrained: near chance
  }
  EXPECT_FALSE(variants[0].losses[1].loss);
  EXPECT_FALSE(variants[0].losses[1].cannot.empty());
  EXPECT_TRUE(variants[1].losses[1].loss) << variants[1].losses[1].cannot;
  const std::string text = untrained_text(variants, {8, 40});
  EXPECT_NE(text.find("cannot"), std::string::npos);
  EXPECT_NE(text.find("at 40 tokens: "), std::string::npos) << text;
  EXPECT_NE(text.find(str("-", 16 * study.base.d_model)), std::string::npos) << text;
}

TEST_F(CompareTest, StoppedItGoesOnAndFinishedRunsAreReadBack) {
  const Study asked = study(R"("variants": [{"name": "alibi", "set": ["position.kind=alibi"]}], "seeds": 2)");
  const Results whole = run(asked, "whole");
  // In the middle of the second run.
  int ended = 0;
  int questions = 0;
  const Results part = run(asked, "parts",
                           {.on_progress = {},
                            .on_run = [&](const RunReport&) { ++ended; },
                            .on_stage = {},
                            .stop = [&] { return ended == 1 && ++questions > 10; }});
  EXPECT_FALSE(part.complete);
  const Json partial = Json::parse(read_text(folder_ / "parts/results.json"));
  EXPECT_FALSE(partial["complete"].get<bool>());
  size_t cached = 0;
  const Results rest = run(load_study(folder_ / "parts"), "parts",
                           {.on_progress = {},
                            .on_run = [&](const RunReport& report) { cached += report.outcome.cached; },
                            .on_stage = {},
                            .stop = {}});
  EXPECT_TRUE(rest.complete);
  EXPECT_EQ(cached, 1u);
  EXPECT_EQ(numbers(whole), numbers(rest));
  // More seeds are run beside the old ones.
  Study more = asked;
  more.seeds = {1, 2, 3};
  cached = 0;
  run(more, "parts",
      {.on_progress = {},
       .on_run = [&](const RunReport& report) { cached += report.outcome.cached; },
       .on_stage = {},
       .stop = {}});
  EXPECT_EQ(cached, 4u);
}

TEST_F(CompareTest, EveryVariantIsCheckedBeforeTheFirstUpdate) {
  const std::string said = lamina::testing::error_of([&] {
    study(R"("seeds": 1, "variants": [
      {"name": "broken", "set": ["layers[0].pattern[0].mixer.n_kv_heads=3"]},
      {"name": "fine", "set": ["norm.kind=layer"]},
      {"name": "nowhere", "set": ["layers[0].pattern[0].mixer.n_hedas=3"]},
      {"name": "late", "recipe": ["stps=3"]}],
      "claims": [{"text": "c", "variant": "fin"}, {"text": "d", "variant": "fine", "metric": "accuracy"}])");
  });
  for (const char* part :
       {"variants[0] (broken)", "n_kv_heads", "variants[2] (nowhere)", "did you mean n_heads?", "variants[3] (late)",
        "did you mean steps?", "claims[0].variant", "did you mean fine?", "measured in tasks only"}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << " in: " << said;
  }
}

// A vocabulary is known when the data is. Then everything is checked again, and a finished study stays as it is.
TEST_F(CompareTest, AStudyThatCannotRunLeavesWhatWasMeasured) {
  const char* rest = R"("seeds": 1, "variants": [{"name": "layer", "set": ["norm.kind=layer"]}])";
  run(study(rest), "study");
  const std::string before = read_text(folder_ / "study/results.json");
  Study wrong = study(rest, {"data.fit_vocab=false"});
  wrong.base.vocab_size = 3;
  size_t runs = 0;
  const std::string said = lamina::testing::error_of([&] {
    run(wrong, "study", {.on_progress = {}, .on_run = [&](const RunReport&) { ++runs; }, .on_stage = {}, .stop = {}});
  });
  EXPECT_NE(said.find("the data has tokens below"), std::string::npos) << said;
  EXPECT_EQ(runs, 0u);
  EXPECT_EQ(read_text(folder_ / "study/results.json"), before);
}

TEST_F(CompareTest, ARunThatDivergesIsAResult) {
  const Results results = run(study(R"("seeds": 1, "variants": [
    {"name": "wild", "recipe": ["optimizer.kind=sgd", "optimizer.lr=1e30", "clip=0"]},
    {"name": "fine", "set": ["norm.kind=layer"]}])"),
                              "study");
  EXPECT_TRUE(results.complete);
  ASSERT_EQ(results.variants.size(), 3u);
  ASSERT_EQ(results.variants[1].runs.size(), 1u);
  EXPECT_TRUE(results.variants[1].runs[0].diverged);
  EXPECT_FALSE(results.variants[1].runs[0].final_loss);
  EXPECT_TRUE(results.variants[2].runs[0].final_loss);
  const Json json = Json::parse(read_text(folder_ / "study/results.json"));
  EXPECT_TRUE(json["variants"][1]["runs"][0]["diverged"].get<bool>());
  // One seed says nothing about chance.
  EXPECT_EQ(json["variants"][2]["summary"]["best_loss"]["mark"], "cannot tell");
  EXPECT_TRUE(json["variants"][2]["summary"]["best_loss"]["p"].is_null());
  EXPECT_EQ(json["variants"][0]["summary"]["best_loss"]["mark"], "base");
}

TEST_F(CompareTest, TheSameWrittenDifferentlyIsNoDifferenceAndADefectIsFound) {
  const Results results = run(study(R"("mode": "ablate", "seeds": 4, "variants": [
    {"name": "same", "set": ["layers=[{\"pattern\": [{\"mixer\": {\"kind\": \"attention\", \"n_heads\": 4, \"n_kv_heads\": 2, \"head_dim\": 8}, \"ffn\": {\"kind\": \"gated\", \"d_ff\": 56, \"gate\": \"swiglu\"}}]}]"]},
    {"name": "offset", "set": ["norm.offset=1"]},
    {"name": "loud", "set": ["layers[0].pattern[0].residual_scale=30"]}],
    "claims": [{"text": "a claim", "variant": "loud", "metric": "perplexity"},
               {"text": "another", "variant": "offset", "from": -0.01, "to": 0.01, "setting": {"steps": 30}}])"),
                              "study");
  const auto mark = [&](size_t variant) { return results.variants[variant].summary.at("best_loss").mark; };
  EXPECT_EQ(mark(1), "no difference");
  // the same architecture: bit-identical losses
  EXPECT_EQ(results.variants[1].runs[2].curve_loss, results.variants[0].runs[2].curve_loss);
  EXPECT_EQ(mark(2), "no difference");
  EXPECT_EQ(mark(3), "worse");
  EXPECT_LT(*results.variants[3].summary.at("best_loss").p, 0.05);
  EXPECT_GE(*results.variants[3].summary.at("best_loss").p, *results.variants[3].summary.at("best_loss").p_alone);
  ASSERT_EQ(results.findings.size(), 6u);
  EXPECT_NE(results.findings[2].text.find("higher than that of base (base), 95 % confidence interval"),
            std::string::npos)
      << results.findings[2].text;
  EXPECT_NE(results.findings[2].text.find(": worse (p = "), std::string::npos);
  EXPECT_NE(results.findings[2].text.find("Holm"), std::string::npos);
  EXPECT_TRUE(results.findings[3].text.starts_with("Still improving at the end of training: base, same, offset"))
      << results.findings[3].text;
  EXPECT_EQ(results.findings[4].verdict, "at our size: does not");
  EXPECT_EQ(results.findings[5].verdict, "holds");
}

TEST_F(CompareTest, ASearchKeepsTheBestAndSaysWhatItDropped) {
  const Results results =
      run(study(R"("mode": "search", "seeds": 2, "search": {"strategy": "product", "rungs": 2, "keep": 0.5,
    "space": [{"name": "scale", "choices": [{"name": "loud", "set": ["layers[0].pattern[0].residual_scale=30"]}]},
              {"name": "norm", "choices": [{"name": "layer", "set": ["norm.kind=layer"]}]}]})"),
          "study");
  EXPECT_TRUE(results.complete);
  ASSERT_EQ(results.variants.size(), 4u);
  EXPECT_EQ(results.variants[0].runs.size(), 2u);
  size_t dropped = 0;
  for (const VariantResult& variant : results.variants) {
    const bool gone = !variant.cannot.empty();
    dropped += gone ? 1 : 0;
    EXPECT_EQ(variant.runs.size(), gone ? 0u : 2u) << variant.variant.name;
    const bool said = variant.cannot.find("dropped after round 1 of 2 (15 steps)") != std::string::npos;
    EXPECT_EQ(said, gone) << variant.cannot;
    EXPECT_FALSE(gone && variant.variant.name == "layer");
  }
  EXPECT_EQ(dropped, 1u);
}

TEST_F(CompareTest, SpeedsTargetsAndTheSweepAreMeasured) {
  Study asked = study(R"("seeds": 1, "variants": [{"name": "mqa", "set": ["layers[0].pattern[0].mixer.n_kv_heads=1"]}],
    "learning_rates": [0.003, 0.03, 1e6], "sweep_steps": 20, "target": 3.2)");
  asked.decode = true;
  const Results results = run(asked, "study");
  const VariantResult& base = results.variants[0];
  const RunResult& one = base.runs[0];
  EXPECT_GT(*one.tokens_per_second, 0);
  EXPECT_GT(*one.decode_tokens_per_second, 0);
  EXPECT_GT(one.peak_memory_bytes, 4 * base.parameters);
  ASSERT_EQ(one.evaluation_loss.size(), 2u);
  const std::optional<double> steps = find_metric("steps_to_target")->of(one, context_of(results));
  for (size_t i = 0; i < 2; ++i) {
    if (one.evaluation_loss[i] > 3.2) continue;
    EXPECT_EQ(steps, one.evaluation_step[i]);
    break;
  }
  // Keys and values of 8 numbers in f32: two heads of each, against one.
  EXPECT_EQ(base.kv_bytes_per_token, 2 * 2 * 8 * 4);
  EXPECT_EQ(results.variants[1].kv_bytes_per_token, 2 * 8 * 4);
  EXPECT_EQ(base.highest_stable_learning_rate, 0.03);
  // Characters are bytes here.
  EXPECT_NEAR(*one.bits_per_byte, *one.best_loss / std::log(2.0), 1e-12);
}

TEST_F(CompareTest, AFolderThatIsNoStudyIsLeftAlone) {
  const Study asked = study(R"("variants": ["gpt2-tiny"])");
  std::filesystem::create_directory(folder_ / "mine");
  write_text(folder_ / "mine/letter.txt", "dear");
  EXPECT_NE(lamina::testing::error_of([&] { run(asked, "mine"); }).find("is not a study"), std::string::npos);
}

}  // namespace
}  // namespace lamina::lab
