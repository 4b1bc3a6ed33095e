// Summaries, marks and sentences computed from made-up runs.
#include "lamina/lab/run/results.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/lab/report/report.h"
#include "lamina/lab/run/format.h"
#include "lamina/lab/run/search.h"

namespace lamina::lab {
namespace {

RunResult run_of(int64_t seed, double loss) {
  RunResult run;
  run.seed = seed;
  run.best_loss = loss;
  run.final_loss = loss + 0.1;
  run.evaluation_step = {100, 200};
  run.evaluation_loss = {loss + 0.5, loss};
  run.evaluation_seconds = {1, 2};
  return run;
}

/// Variants by their best losses, for seeds 1, 2, …
Results results_of(const std::vector<std::vector<double>>& losses, Mode mode = Mode::ablate) {
  Results results;
  results.study.mode = mode;
  results.study.base = arch::load_preset("llama-tiny");
  results.study.base_name = "v0";
  for (size_t i = 0; i < losses.size(); ++i) {
    VariantResult variant;
    variant.variant.name = variant.variant.label = "v" + std::to_string(i);
    for (size_t seed = 0; seed < losses[i].size(); ++seed) {
      variant.runs.push_back(run_of(static_cast<int64_t>(seed) + 1, losses[i][seed]));
    }
    results.variants.push_back(variant);
  }
  results.study.seeds.clear();
  for (size_t seed = 0; seed < losses[0].size(); ++seed) results.study.seeds.push_back(static_cast<int64_t>(seed) + 1);
  summarise(results);
  return results;
}

const MetricSummary& loss_of(const Results& results, size_t variant) {
  return results.variants[variant].summary.at("best_loss");
}

TEST(PercentTest, HasTwoDigitsAndNoExponent) {
  EXPECT_EQ(percent_of(0.0017), "0.17 %");
  EXPECT_EQ(percent_of(0.023), "2.3 %");
  EXPECT_EQ(percent_of(0.51), "51 %");
  EXPECT_EQ(percent_of(1.1882), "119 %");
}

TEST(ResultsTest, MarksFollowFromPairsNotFromMeans) {
  // Seeds differ far more than variants do; v1 is 0.01 below the base with every one of them.
  const Results results = results_of({{2.0, 2.5, 3.0, 2.2}, {1.99, 2.489, 2.991, 2.19}, {2.3, 2.2, 3.1, 2.1}});
  EXPECT_EQ(loss_of(results, 0).mark, "base");
  EXPECT_EQ(loss_of(results, 1).mark, "better");
  EXPECT_NEAR(*loss_of(results, 1).difference, -0.01, 1e-12);
  EXPECT_EQ(loss_of(results, 2).mark, "cannot tell");  // nothing was found, and nothing was ruled out
  // Two comparisons: the smaller p counts twice.
  EXPECT_NEAR(*loss_of(results, 1).p, 2 * *loss_of(results, 1).p_alone, 1e-15);
  EXPECT_NE(results.findings[0].text.find(
                "0.0100 (0.41 %) lower than that of v0 (base), 95 % confidence interval −0.0113 to −0.0087: better "
                "(p < 0.001 after Holm's correction, 4 seeds)"),
            std::string::npos)
      << results.findings[0].text;
}

TEST(ResultsTest, SentencesNameTheSizesThatWereCompared) {
  Results results = results_of({{2.0, 2.5, 3.0, 2.2}, {1.99, 2.489, 2.991, 2.19}, {2.3, 2.2, 3.1, 2.1}});
  for (size_t i = 0; i < 3; ++i) {
    results.variants[i].parameters = i == 1 ? 909'000 : 1'000'000 + static_cast<int64_t>(i);
    results.variants[i].flops_per_token = 2e6;
    results.variants[i].architecture = arch::resolve(results.study.base);
  }
  summarise(results);
  EXPECT_NE(results.findings[0].text.find(", with 9.1 % fewer parameters: better"), std::string::npos)
      << results.findings[0].text;
  EXPECT_NE(results.findings[1].text.find(", at equal parameters: cannot tell"), std::string::npos)
      << results.findings[1].text;
  const std::string page = report_html(results_json(results), "x");
  EXPECT_NE(page.find(", with 9.1\u00a0% fewer parameters."), std::string::npos);
  EXPECT_NE(report_html(results_json(results), "x", Language::zh).find("，参数量少 9.1\u00a0%。"), std::string::npos);
  results.study.matching = Matching::compute;
  results.study.budget = Budget{BudgetUnit::tokens, 1e6, {}};
  summarise(results);
  EXPECT_NE(results.findings[0].text.find(", at equal FLOPs per token, at equal tokens: better"), std::string::npos)
      << results.findings[0].text;
}

TEST(ResultsTest, RunsThatHaveNotConvergedAreSaid) {
  Results results = results_of({{2.0, 2.5, 3.0}, {1.9, 2.4, 2.9}});
  const auto notes = [&] {
    std::string text;
    for (const Finding& finding : results.findings) text += finding.kind == "note" ? finding.text : "";
    return text;
  };
  EXPECT_EQ(notes().find("Still improving"), std::string::npos) << notes();
  for (RunResult& run : results.variants[1].runs) run.best_step = 200;
  summarise(results);
  EXPECT_NE(notes().find("Still improving at the end of training: v1. "), std::string::npos) << notes();
  const std::string page = report_html(results_json(results), "x");
  EXPECT_EQ(page.find("Still improving"), page.rfind("Still improving"));
  EXPECT_NE(page.find("Still improving at the end of training: v1."), std::string::npos);
}

TEST(ResultsTest, TuningAtTheEndOfAListIsSaid) {
  Results results = results_of({{2.0, 2.5, 3.0}, {1.9, 2.4, 2.9}});
  results.study.tuning.weight_decays = {0, 0.1, 0.3};
  results.study.tuning.warmups = {0, 100};
  for (const auto& [variant, decay, warmup] : {std::tuple(0, "0.3", "0"), std::tuple(1, "0", "100")}) {
    VariantResult& tuned = results.variants[static_cast<size_t>(variant)];
    tuned.trials = {{{str("optimizer.weight_decay=", decay), str("schedule.warmup=", warmup)}, 2.0}};
    tuned.chosen_trial = 0;
  }
  summarise(results);
  std::string said;
  for (const Finding& finding : results.findings) said += finding.text + "\n";
  EXPECT_NE(said.find("v0: the best weight decay, 0.3, is the highest"), std::string::npos) << said;
  EXPECT_NE(said.find("v1: the best warm-up, 100, is the highest"), std::string::npos) << said;
  EXPECT_EQ(said.find("lowest"), std::string::npos) << said;  // below 0 is nothing
}

TEST(ResultsTest, TwoSeedsMustAgreeVeryWell) {
  EXPECT_EQ(loss_of(results_of({{2.0, 2.1}, {2.01, 2.13}}), 1).mark, "cannot tell");
  EXPECT_EQ(loss_of(results_of({{2.0, 2.1}, {2.5, 1.6}}), 1).mark, "cannot tell");  // p is high, but two are too few
  EXPECT_EQ(loss_of(results_of({{2.0, 2.1}, {2.1, 2.2001}}), 1).mark, "worse");     // p is 0.0003
  EXPECT_EQ(loss_of(results_of({{2.0, 2.1}, {2.0, 2.1}}), 1).mark, "no difference");
  EXPECT_EQ(loss_of(results_of({{2.0}, {1.0}}), 1).mark, "cannot tell");
}

TEST(ResultsTest, NoDifferenceNeedsAnEquivalenceTest) {
  // Differences of at most 0.004, below the margin of 0.5 % of 2.2: equivalent.
  const Results close = results_of({{2.0, 2.2, 2.4, 2.1, 2.3}, {2.002, 2.199, 2.404, 2.098, 2.301}});
  EXPECT_EQ(loss_of(close, 1).mark, "no difference");
  EXPECT_LT(*loss_of(close, 1).p_equivalence, 0.05);
  EXPECT_GT(*loss_of(close, 1).p, 0.05);
  EXPECT_NE(close.findings[0].text.find("no difference (smaller than 0.5 %, p"), std::string::npos)
      << close.findings[0].text;
  EXPECT_FALSE(loss_of(close, 1).seeds_needed);
  // The report shows the p that decided.
  char p[32];
  std::snprintf(p, sizeof p, "%.3f", *loss_of(close, 1).p_equivalence);
  EXPECT_NE(report_markdown(results_json(close), "x").find(p), std::string::npos);
  // Equal means with ten times the scatter: a difference is neither found nor ruled out.
  const Results wide = results_of({{2.0, 2.2, 2.4, 2.1, 2.3}, {2.02, 2.19, 2.44, 2.08, 2.31}});
  EXPECT_EQ(loss_of(wide, 1).mark, "cannot tell");
  ASSERT_TRUE(loss_of(wide, 1).seeds_needed);
  EXPECT_GT(*loss_of(wide, 1).seeds_needed, 5u);
  EXPECT_NE(wide.findings[0].text.find(str("takes about ", *loss_of(wide, 1).seeds_needed, " seeds")),
            std::string::npos)
      << wide.findings[0].text;
}

TEST(ResultsTest, DivergedAndMissingRunsGetNoVerdict) {
  Results results = results_of({{2.0, 2.5, 3.0, 2.2}, {1.9, 2.4, 2.9, 2.1}});
  ASSERT_EQ(loss_of(results, 1).mark, "better");
  Claim claim;
  claim.text = "v1 is better";
  claim.variant = "v1";
  results.study.claims = {claim};
  results.variants[1].runs[2].diverged = true;
  summarise(results);
  EXPECT_EQ(loss_of(results, 1).mark, "cannot tell");
  EXPECT_NE(results.findings[0].text.find("cannot tell (1 of 4 runs of v1 diverged)"), std::string::npos)
      << results.findings[0].text;
  EXPECT_EQ(results.findings.back().verdict, "cannot tell");
  results.variants[1].runs[2].diverged = false;
  results.variants[0].runs.pop_back();  // the reference now has fewer runs
  summarise(results);
  EXPECT_EQ(loss_of(results, 1).mark, "cannot tell");
  EXPECT_NE(results.findings[0].text.find("3 of 4 runs of v0 finished"), std::string::npos);
}

TEST(ResultsTest, ALaddersTableAndSentencesCompareWithThePreviousRung) {
  const Results results = results_of({{2.0, 2.1, 2.2}, {1.8, 1.9, 2.01}, {1.85, 1.95, 2.061}}, Mode::ladder);
  EXPECT_EQ(loss_of(results, 1).mark, "better");  // better than the base
  EXPECT_EQ(loss_of(results, 2).mark, "worse");   // worse than v1, the previous rung, though better than the base
  EXPECT_NEAR(*loss_of(results, 2).difference, 0.0503, 1e-3);
  const std::string& said = results.findings[1].text;
  EXPECT_NE(said.find("higher than that of v1 (previous rung), 95 % confidence interval"), std::string::npos) << said;
  // The sentence, the table and the report show the same p.
  char p[32];
  std::snprintf(p, sizeof p, "%.3f", *loss_of(results, 2).p);
  EXPECT_NE(said.find(std::string(*loss_of(results, 2).p < 0.001 ? "p < 0.001" : "p = ") +
                      (*loss_of(results, 2).p < 0.001 ? "" : p)),
            std::string::npos)
      << said;
  EXPECT_NE(report_text(results_json(results), "x").find("to previous rung"), std::string::npos);
  EXPECT_NE(report_markdown(results_json(results), "x").find("Compared with the previous rung"), std::string::npos);
  EXPECT_NE(report_csv(results_json(results), "x").find("best_loss_difference_to_previous_rung,best_loss_p"),
            std::string::npos);
}

TEST(ResultsTest, AVariantHasOnePAndFewColumns) {
  const Results results = results_of({{2.0, 2.5, 3.0, 2.2}, {1.99, 2.489, 2.991, 2.19}});
  const std::string standard = report_markdown(results_json(results), "x");
  const auto count = [](const std::string& text, const std::string& part) {
    size_t found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count(standard.substr(standard.find("## Results")), "p < 0.001"), 1u) << standard;
  const std::string table = report_text(results_json(results), "x");
  EXPECT_NE(table.find("Perplexity"), std::string::npos) << table;
  // Best and final loss are both shown; what equal time gives only on demand.
  EXPECT_NE(table.find("Final loss"), std::string::npos) << table;
  EXPECT_EQ(table.find("Best loss, equal time"), std::string::npos) << table;
  EXPECT_NE(report_text(results_json(results), "x", Columns::all).find("Best loss, equal time"), std::string::npos);
  EXPECT_NE(report_csv(results_json(results), "x").find("final_loss"), std::string::npos);
  EXPECT_EQ(report_csv(results_json(results), "x").find("spikes"), std::string::npos);
}

TEST(ResultsTest, BestAndFinalLossAtEqualBudgets) {
  // Evaluations at 1, 2, 3, 4 and at 2, 4, 6, 8 seconds; the shorter run has 4 seconds and half the tokens.
  const auto run = [](double seconds, int64_t tokens) {
    RunResult result;
    result.seed = 1;
    result.tokens_per_step = tokens;
    result.evaluation_step = {10, 20, 30, 40};
    result.evaluation_loss = {3.0, 2.0, 2.4, 2.2};
    for (const double each : {1, 2, 3, 4}) result.evaluation_seconds.push_back(each * seconds);
    result.best_loss = 2.0;
    result.best_step = 20;
    result.final_loss = 2.2;
    return result;
  };
  Results results = results_of({{2.0}, {2.0}});
  results.variants[0].runs = {run(1, 100)};
  results.variants[1].runs = {run(2, 200)};
  summarise(results);
  const auto mean = [&](size_t variant, const char* key) { return *results.variants[variant].summary.at(key).mean; };
  EXPECT_EQ(mean(0, "final_loss_equal_time"), 2.2);
  EXPECT_EQ(mean(1, "final_loss_equal_time"), 2.0);  // the loss of the second evaluation, at 4 seconds
  EXPECT_EQ(mean(1, "best_loss_equal_time"), 2.0);
  EXPECT_EQ(mean(1, "final_loss_equal_tokens"), 2.0);  // 4000 tokens are its 20 steps
  // Between two evaluations the loss is interpolated.
  results.variants[0].runs = {run(0.75, 100)};
  summarise(results);
  EXPECT_NEAR(mean(1, "final_loss_equal_time"), 2.5, 1e-12);
  // Runs of the same length have no budget of tokens; a run that ends above its best is named.
  results.variants[1].runs = {run(1, 100)};
  summarise(results);
  EXPECT_FALSE(results.variants[1].summary.contains("final_loss_equal_tokens"));
  bool named = false;
  for (const Finding& finding : results.findings)
    named = named || finding.text.find("at step 20 of") != std::string::npos;
  EXPECT_TRUE(named);
  const auto json = nlohmann::json::parse(results_json(results));
  EXPECT_EQ(json["variants"][0]["runs"][0]["evaluations"]["seconds"], nlohmann::json({0.75, 1.5, 2.25, 3.0}));
  EXPECT_EQ(json["variants"][0]["runs"][0]["tokens_per_step"], 100);
}

TEST(ResultsTest, ConcurrentRunsAreSaidToDisturbSpeeds) {
  Results results = results_of({{2.0, 2.5, 3.0, 2.2}, {1.9, 2.4, 2.9, 2.1}});
  const auto notes = [&] {
    return std::count_if(results.findings.begin(), results.findings.end(), [](const Finding& finding) {
      return finding.text.find("4 runs at a time") != std::string::npos;
    });
  };
  EXPECT_EQ(notes(), 0);
  results.machine.jobs = 4;
  summarise(results);
  EXPECT_EQ(notes(), 1);
}

/// One claim that v1 is better, made there, judged in a study of `parameters`.
std::string verdict_at(const Setting& setting, int64_t parameters) {
  Results results = results_of({{2.0, 2.5, 3.0, 2.2}, {1.9, 2.4, 2.9, 2.1}});
  results.variants[1].parameters = parameters;
  results.study.recipe.length = 32;
  Claim claim;
  claim.text = "v1 is better";
  claim.variant = "v1";
  claim.setting = setting;
  results.study.claims = {claim};
  summarise(results);
  EXPECT_EQ(results.findings.back().claim, "v1 is better");
  return results.findings.back().verdict;
}

TEST(ResultsTest, AVerdictNeedsTheClaimsSetting) {
  EXPECT_EQ(verdict_at({.parameters = 1e6, .length = {}, .steps = {}}, 800000), "holds");
  EXPECT_EQ(verdict_at({.parameters = 7e9, .length = {}, .steps = {}}, 800000), "at our size: holds");
  EXPECT_EQ(verdict_at({.parameters = 1e6, .length = 2048.0, .steps = {}}, 800000), "at our size: holds");
  EXPECT_EQ(verdict_at({}, 800000), "at our size: holds");
}

TEST(ResultsTest, ATargetIsReachedOrNot) {
  // The base's worst best is 2.2: v1's second run never gets there.
  const Results results = results_of({{2.0, 2.2}, {1.6, 2.4}});
  EXPECT_EQ(results.target, 2.2);
  const MetricSummary& steps = results.variants[1].summary.at("steps_to_target");
  EXPECT_EQ(steps.runs, 1u);
  EXPECT_EQ(steps.mean, 100.0);
  const auto json = nlohmann::json::parse(results_json(results));
  EXPECT_EQ(json["variants"][1]["runs"][0]["steps_to_target"], 100);
  EXPECT_TRUE(json["variants"][1]["runs"][1]["steps_to_target"].is_null());
  EXPECT_EQ(json["base"], "v0");
  EXPECT_NE(report_text(results_json(results), "x").find("v1"), std::string::npos);
}

// Comparing only the seeds that reach the target would favour a variant that rarely does.
TEST(ResultsTest, RunsThatNeverReachTheTargetGetNoVerdict) {
  Results results = results_of({{2.0, 2.1, 2.2, 2.2}, {1.6, 1.7, 1.8, 2.4}});
  for (RunResult& run : results.variants[0].runs) {
    const auto shift = 10 * static_cast<double>(run.seed);
    run.evaluation_step = {400 + shift, 500 + shift};
  }
  Claim claim;
  claim.text = "v1 needs half the updates";
  claim.variant = "v1";
  claim.metric = "steps_to_target";
  claim.from = 0.5;
  results.study.claims = {claim};
  summarise(results);
  const MetricSummary& steps = results.variants[1].summary.at("steps_to_target");
  EXPECT_EQ(steps.runs, 3u);
  EXPECT_EQ(steps.mark, "cannot tell");
  EXPECT_FALSE(steps.p);
  EXPECT_FALSE(steps.difference);
  EXPECT_EQ(results.findings.back().verdict, "cannot tell");
  EXPECT_NE(results.findings.back().text.find("only 3 of 4 seeds have steps to the target in both"), std::string::npos)
      << results.findings.back().text;
  // Once every run reaches it, they are compared.
  results.variants[1].runs[3] = run_of(4, 1.9);
  summarise(results);
  EXPECT_EQ(results.variants[1].summary.at("steps_to_target").mark, "better");
  EXPECT_EQ(results.findings.back().verdict, "at our size: holds");
}

TEST(ResultsTest, SeedsNeededAllowForTheCorrection) {
  const std::vector<double> base = {2.0, 2.2, 2.4, 2.1, 2.3};
  const std::vector<double> other = {2.02, 2.19, 2.44, 2.08, 2.31};
  const size_t one = *loss_of(results_of({base, other}), 1).seeds_needed;
  const size_t three = *loss_of(results_of({base, other, other, other}), 1).seeds_needed;
  EXPECT_GT(three, one + one / 5);
}

TEST(SweepTest, TheHighestStableRateIsBelowTheFirstThatIsNot) {
  const auto outcome = [](double last, bool diverged = false) {
    RunOutcome made;
    made.result.emplace();
    made.result->diverged = diverged;
    for (int i = 0; i < 20; ++i) made.result->curve_loss.push_back(4 + (last - 4) * i / 19);
    return made;
  };
  EXPECT_EQ(highest_stable({{1e-3, outcome(3)}, {1e-2, outcome(2)}, {1e-1, outcome(2.1)}, {1, outcome(2.5)}}), 1e-1);
  EXPECT_EQ(highest_stable({{1e-3, outcome(3)}, {1e-2, outcome(2, true)}, {1e-1, outcome(2)}}), 1e-3);
  EXPECT_EQ(highest_stable({{1e-3, outcome(5)}, {1e-2, outcome(2)}}), std::nullopt);
}

}  // namespace
}  // namespace lamina::lab
