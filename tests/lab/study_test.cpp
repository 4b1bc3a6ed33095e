// Study files: reading, defaults and errors.
#include "lamina/lab/study/study.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "lamina/arch/count.h"
#include "lamina/arch/edit.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/arch/schema.h"
#include "lamina/base/files.h"
#include "lamina/lab/report/report.h"
#include "lamina/lab/run/plan.h"
#include "lamina/lab/run/power.h"
#include "lamina/lab/run/search.h"
#include "lamina/lab/study/matching.h"
#include "lamina/lab/study/switches.h"
#include "support/error_of.h"

namespace lamina::lab {
namespace {

using lamina::testing::error_of;

std::string problems_of(const std::string& text) {
  return error_of([&] { read_study(text, "test"); });
}
void expect_part(const std::string& whole, const std::string& part) {
  EXPECT_NE(whole.find(part), std::string::npos) << "expected \"" << part << "\" in: " << whole;
}

TEST(StudyTest, EveryMistakeIsSaidAtOnceWithTheNearestName) {
  const std::string said = problems_of(R"({"base": "llama-tiny", "variants": [{"nme": "a", "set": []}, "gpt2-tiyn"],
    "recipe": {"stps": 3, "seed": 1, "optimizer": {"kind": "adamv"}}, "matchin": "none"})");
  expect_part(said, "variants[0].nme");
  expect_part(said, "did you mean name?");
  expect_part(said, "did you mean gpt2-tiny?");
  expect_part(said, "did you mean steps?");
  expect_part(said, "did you mean adamw?");
  expect_part(said, "did you mean matching?");
  expect_part(said, "set the study's seeds");
}

TEST(StudyTest, WhatCannotBeAskedIsRefused) {
  expect_part(problems_of(R"({"base": "llama-tiny"})"), "nothing to compare the base with");
  expect_part(problems_of(R"({"variants": [{"set": ["norm.kind=layer"]}]})"), "set the study's base");
  expect_part(problems_of(R"({"mode": "ablate", "base": "llama-tiny", "variants": ["rns"]})"), "did you mean rms?");
  expect_part(problems_of(R"({"base": "llama-tiny", "variants": ["gpt2-tiny"], "seeds": [1, 1]})"),
              "one is listed twice");
  expect_part(problems_of(R"({"base": "llama-tiny", "variants": ["gpt2-tiny"], "seeds": 0})"), "expected 1 to 1000");
  expect_part(problems_of(R"({"base": "llama-tiny", "variants": ["gpt2-tiny", "gpt2-tiny"]})"), "is used twice");
  expect_part(problems_of(R"({"base": "llama-tiny", "variants": ["gpt2-tiny"], "learning_rates": [1, 0.1]})"),
              "ascend");
  expect_part(problems_of(R"({"mode": "search", "base": "llama-tiny"})"), "has no choice");
  expect_part(problems_of(R"({"base": "llama-tiny", "variants": ["gpt2-tiny"],
    "claims": [{"text": "c", "variant": "no", "metric": "speed"}]})"),
              "is not a variant");
  expect_part(problems_of(R"({"mode": "search", "base": "llama-tiny", "seeds": 2, "search": {"space": ["norm"],
    "selection_seed": 2}})"),
              "2 is also a seed of the study");
  expect_part(problems_of(R"({"base": "llama-tiny", "variants": ["gpt2-tiny"], "budget": {"unit": "flop"}})"),
              "did you mean flops?");
  expect_part(problems_of(R"({"base": "llama-tiny", "budget": {"unit": "tokens", "amount": 1e6},
    "variants": [{"name": "a", "set": ["norm.kind=layer"], "recipe": ["steps=3"]}]})"),
              "beside a budget");
  expect_part(error_of([] { load_study("hedline"); }), "did you mean headline?");
}

TEST(StudyTest, ALaddersMistakeIsSaidOnceAndASearchsChoicesAreRead) {
  const std::string ladder = problems_of(R"({"mode": "ladder", "base": "gpt2-tiny",
    "variants": [{"name": "a", "set": ["norm.ep=1"]}, "rope", {"name": "b", "set": ["positon.kind=rope"]}]})");
  expect_part(ladder, "did you mean eps?");
  expect_part(ladder, "did you mean position?");
  EXPECT_EQ(ladder.find("did you mean eps?"), ladder.rfind("did you mean eps?")) << ladder;
  expect_part(problems_of(R"({"mode": "search", "base": "llama-tiny", "search": {"space": [
    {"name": "x", "choices": [{"name": "a", "set": ["norm.ep=1"]}]}]}})"),
              "search.space[0].choices[0]");
}

TEST(StudyTest, ClaimsAreAboutWhatIsMeasured) {
  const std::string said = problems_of(R"({"base": "llama-tiny", "variants": ["gpt2-tiny"], "decode": false, "claims": [
    {"variant": "gpt2-tiny"}, {"text": "c", "variant": "llama-tiny"},
    {"text": "d", "variant": "gpt2-tiny", "metric": "decode_tokens_per_second"},
    {"text": "e", "variant": "gpt2-tiny", "from": 0.2, "to": 0.1}]})");
  expect_part(said, "claims[0].text");
  expect_part(said, "is compared with itself");
  expect_part(said, "if decode is false");
  expect_part(said, "below from");
}

TEST(SwitchesTest, AGroupHoldsWhatTheBaseCanTake) {
  const arch::ArchSpec mamba = arch::load_preset("mamba-tiny");
  EXPECT_TRUE(switch_variants("attention", mamba).empty());
  EXPECT_FALSE(switch_variants("norm", mamba).empty());
  EXPECT_EQ(problems_of(R"({"mode": "ablate", "base": "mamba-tiny"})"), "");
  // Named by itself it is a mistake.
  expect_part(problems_of(R"({"mode": "ablate", "base": "mamba-tiny", "variants": ["gqa"]})"), "variants[0] (gqa)");
}

TEST(StudyTest, TheFirstOfAVersusIsTheBase) {
  const Study study = read_study(R"({"variants": ["gpt2-tiny", "llama-tiny"], "seeds": 2})", "test");
  EXPECT_EQ(study.base_name, "gpt2-tiny");
  ASSERT_EQ(study.variants.size(), 1u);
  EXPECT_EQ(study.variants[0].name, "llama-tiny");
  EXPECT_EQ(study.seeds, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(*variants_of(study)[1].architecture, arch::load_preset("llama-tiny"));
}

TEST(StudyTest, ALadderAddsChangesUp) {
  const Study study = read_study(R"({"mode": "ladder", "base": "gpt2-tiny", "variants": ["rope", "rms"]})", "test");
  const std::vector<Variant> all = variants_of(study);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_TRUE(all[0].set.empty());
  EXPECT_EQ(all[1].set, study.variants[0].set);
  EXPECT_EQ(all[2].set.size(), study.variants[0].set.size() + study.variants[1].set.size());
  const arch::ArchSpec top = arch::with_overrides(*all[2].architecture, all[2].set);
  EXPECT_TRUE(std::holds_alternative<arch::Rope>(top.position));
  EXPECT_TRUE(std::holds_alternative<arch::RmsNorm>(top.norm));
}

TEST(StudyTest, WrittenAndReadAgainItIsTheSame) {
  const char* texts[] = {R"({"variants": ["gpt2-tiny", "llama-tiny"], "matching": "compute", "target": 1.5})",
                         R"({"mode": "ablate", "base": "llama-tiny", "recipe": {"steps": 30}})",
                         R"({"mode": "ladder", "base": "transformer-tiny", "learning_rates": [1e-3, 1e-2]})",
                         R"({"mode": "search", "base": "llama-tiny", "search": {"space": ["norm", "position"]}})"};
  for (const char* text : texts) {
    const Study study = read_study(text, "test");
    const Study again = read_study(write_study(study), "test");
    EXPECT_TRUE(study == again) << text;
    // Results are studies too.
    const std::string results = R"({"schema": 1, "description": )" + write_study(study) + "}";
    EXPECT_TRUE(study == read_study(results, "test")) << text;
  }
}

TEST(StudyTest, ChangesOfTheRecipeKnowTheDefaults) {
  const Study study = read_study(R"({"variants": ["gpt2-tiny", "llama-tiny"]})", "test",
                                 {"optimizer.lr=0.5", "schedule.min_lr_ratio=0", "steps=40", "data.order=shuffled"});
  EXPECT_EQ(study.recipe.steps, 40);
  EXPECT_EQ(std::get<train::AdamWChoice>(study.recipe.optimizer).lr, 0.5);
  EXPECT_EQ(std::get<train::CosineSchedule>(study.recipe.schedule).warmup, 4);
  EXPECT_EQ(study.recipe.eval_every, 4);
  EXPECT_EQ(study.recipe.data.train, "synthetic");
}

TEST(StudyTest, ShippedStudiesCanBeRead) {
  EXPECT_GE(study_files().size(), 5u);
  for (const StudyFile& file : study_files()) {
    const Study study = load_study(std::string(file.name));
    EXPECT_FALSE(study.question.empty()) << file.name;
    EXPECT_TRUE(study.expected_minutes) << file.name << ": `lamina compare --list` shows how long it takes";
    EXPECT_TRUE(study.expected_gpu_minutes) << file.name;
    for (const Variant& variant : variants_of(study)) {
      EXPECT_EQ(error_of([&] { arch::resolve(arch::with_overrides(*variant.architecture, variant.set)); }), "")
          << file.name << ": " << variant.name;
    }
  }
}

TEST(StudyTest, RunsAreCounted) {
  EXPECT_EQ(run_count(read_study(R"({"variants": ["gpt2-tiny", "llama-tiny"], "seeds": 3,
    "learning_rates": [0.1, 0.2]})",
                                 "test")),
            10u);
}

// The models that a laptop trains have a million parameters each, within a tenth, and build.
TEST(StudyTest, PresetsOfAMillionParameters) {
  for (const char* name : {"gpt2-1m", "llama-1m", "mamba-1m", "hybrid-1m"}) {
    const auto count = static_cast<double>(arch::count_parameters(arch::resolve(arch::load_preset(name))).total);
    EXPECT_NEAR(count, 1e6, 1e5) << name;
  }
}

// Results in the repository can be repeated and reported, also those of older versions.
TEST(StudyTest, ResultsInTheDocumentationAreReadable) {
  size_t studies = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(LAMINA_SOURCE_DIR) + "/docs/studies")) {
    const std::string file = (entry.path() / "results.json").string();
    if (!file_exists(file)) continue;
    ++studies;
    const Study study = load_study(file);
    EXPECT_EQ(load_study((entry.path() / "study.json").string()).variants.size(), study.variants.size()) << file;
    EXPECT_FALSE(report_csv(read_text(file), file).empty());
  }
  EXPECT_GE(studies, 11U);
}

TEST(StudyTest, TheDocumentationListsEveryKey) {
  const std::string docs = read_text(std::string(LAMINA_SOURCE_DIR) + "/docs/reference/study-file.md");
  EXPECT_NE(docs.find(study_markdown()), std::string::npos)
      << "docs/reference/study-file.md is out of date; run `make docs`";
}

TEST(SwitchesTest, EachBuildsAndChangesSomething) {
  for (const char* name : {"llama-tiny", "gpt2-tiny"}) {
    const arch::ArchSpec base = arch::load_preset(name);
    const std::vector<Variant> all = all_switch_variants(base);
    EXPECT_GT(all.size(), 45u) << name;
    for (const Variant& variant : all) {
      EXPECT_EQ(error_of([&] { arch::resolve(arch::with_overrides(base, variant.set)); }), "")
          << name << ": " << variant.name;
    }
  }
  // Every switch changes one of these and builds.
  std::set<std::string> useful;
  const arch::ArchSpec post =
      arch::with_overrides(arch::load_preset("gpt2-tiny"), {"layers[*].pattern[*].placement=post"});
  for (const arch::ArchSpec& base :
       {arch::load_preset("llama-tiny"), arch::load_preset("gpt2-tiny"), arch::load_preset("falcon-tiny"), post}) {
    for (const Variant& variant : all_switch_variants(base)) useful.insert(variant.name);
  }
  for (const Switch& choice : switches()) EXPECT_TRUE(useful.contains(choice.name)) << choice.name;
  // Grouped by what they are about; the base's own choice is not a variant.
  for (const Variant& variant : switch_variants("norm", arch::load_preset("llama-tiny")))
    EXPECT_NE(variant.name, "rms");
}

/// Every kind and every value of a choice in an architecture file, except under keys of `skipped`.
void collect_choices(const arch::SchemaNode& node, const std::set<std::string>& skipped, std::set<std::string>& found,
                     int depth = 0) {
  if (depth > 8) return;
  for (const std::string& name : node.names) found.insert(name);
  for (const arch::SchemaOption& option : node.options) {
    if (!option.kind.empty()) found.insert(option.kind);
    for (const arch::SchemaField& field : option.fields) {
      if (!skipped.contains(field.key)) collect_choices(field.node, skipped, found, depth + 1);
    }
  }
  for (const arch::SchemaNode& element : node.element) collect_choices(element, skipped, found, depth + 1);
}

TEST(SwitchesTest, EveryChoiceOfADecoderHasOne) {
  // Encoders, retrieval and classifiers are not decoders; `draw` is how a published checkpoint drew its random blocks.
  const std::set<std::string> skipped = {"encoder", "retrieval", "pooling", "classifier", "transform", "cross", "draw"};
  std::set<std::string> choices;
  collect_choices(arch::schema(), skipped, choices);
  ASSERT_GT(choices.size(), 60u);
  std::string all;
  for (const Switch& choice : switches()) {
    const Variant variant = switch_variants(choice.name, arch::load_preset("llama-tiny"))[0];
    for (const std::string& edit : variant.set) all += edit + "\n";
  }
  // Defaults, details of published checkpoints, and LongRoPE, which needs a list of factors.
  const std::set<std::string> without = {"none",       "full", "constant", "half_split", "softmax", "softmax_of_near",
                                         "longrope",   "up",   "down",     "f32",        "bf16",    "after_gate",
                                         "before_gate"};
  for (const std::string& name : choices) {
    if (without.contains(name)) continue;
    const bool written = std::regex_search(all, std::regex("[=\"]" + name + "(\n|\")"));
    EXPECT_TRUE(written) << "no switch sets " << name;
  }
}

TEST(MatchingTest, FeedForwardsTakeUpTheDifference) {
  arch::ArchSpec base = arch::load_preset("llama-10m");
  const double wanted = matched_size(arch::resolve(base), Matching::parameters, 256);
  const arch::ArchSpec plain =
      arch::with_overrides(base, {"layers[*].pattern[*].ffn.kind=plain", "layers[*].pattern[*].ffn.d_ff=512"});
  const Matched matched = match(plain, wanted, Matching::parameters, 256);
  ASSERT_TRUE(matched.adjusted);
  EXPECT_EQ(matched.adjusted->field, "d_ff");
  EXPECT_EQ(matched.adjusted->from, 512);
  // Three matrices of 1024 are two of 1536, exactly.
  EXPECT_EQ(matched.adjusted->to, 1536);
  EXPECT_EQ(matched.adjusted->difference, 0);
  EXPECT_EQ(static_cast<double>(arch::count_parameters(matched.spec).total), wanted);
  EXPECT_FALSE(match(base, wanted, Matching::parameters, 256).adjusted);
}

TEST(MatchingTest, WithoutThemTheWidthDoesInWholeHeads) {
  const arch::ArchSpec base = arch::load_preset("llama-10m");
  const double wanted = matched_size(arch::resolve(base), Matching::compute, 128);
  const arch::ArchSpec bare = arch::with_overrides(base, {"layers[*].pattern[*].ffn=none"});
  const Matched matched = match(bare, wanted, Matching::compute, 128);
  ASSERT_TRUE(matched.adjusted);
  EXPECT_EQ(matched.adjusted->field, "d_model");
  EXPECT_EQ(matched.spec.d_model, matched.adjusted->to);
  EXPECT_EQ(matched.spec.d_model % (2 * 6), 0);
  EXPECT_LT(std::abs(matched.adjusted->difference), 0.05);
  EXPECT_NEAR(matched_size(matched.spec, Matching::compute, 128) / wanted - 1, matched.adjusted->difference, 1e-12);
}

TEST(SearchTest, CandidatesAreDifferentAndTheSameForTheSameSeed) {
  Study study = read_study(R"({"mode": "search", "base": "llama-tiny", "search": {"space": ["norm", "ffn", "position"],
    "candidates": 20}})",
                           "test");
  const std::vector<Variant> drawn = search_candidates(study.search);
  ASSERT_EQ(drawn.size(), 20u);
  std::set<std::vector<std::string>> sets;
  for (const Variant& variant : drawn) EXPECT_TRUE(sets.insert(variant.set).second && !variant.set.empty());
  EXPECT_EQ(drawn, search_candidates(study.search));
  study.search.seed = 2;
  EXPECT_NE(drawn, search_candidates(study.search));
  study.search.space.resize(1);
  study.search.strategy = Strategy::product;
  EXPECT_EQ(search_candidates(study.search).size(), study.search.space[0].choices.size());
}

// The expected numbers are from the series of the noncentral t distribution (AS 243).
TEST(PowerSentenceTest, AllowsForTheNumberOfVariants) {
  const auto sentence = [](const std::string& variants, int seeds) {
    return power_sentence(read_study(R"({"mode": "ablate", "base": "llama-tiny", "seeds": )" + std::to_string(seeds) +
                                         R"(, "variants": [)" + variants + "]}",
                                     "test"));
  };
  const std::string one = sentence(R"("layer")", 5);
  EXPECT_NE(one.find("5 seeds find a difference of 1 % of the loss; finding 0.5 % takes 14 seeds"), std::string::npos)
      << one;
  EXPECT_EQ(one.find("Holm"), std::string::npos) << one;
  const std::string four = sentence(R"("layer", "alibi", "mqa", "relu")", 3);
  EXPECT_NE(four.find("3 seeds find a difference of 3.9 % of the loss; finding 0.5 % takes 20 seeds"),
            std::string::npos)
      << four;
  EXPECT_NE(four.find("Holm's correction over 4 variants"), std::string::npos) << four;
}

TEST(ParallelismTest, JobsAndThreadsShareTheCores) {
  Study study;
  EXPECT_EQ(parallelism_of(study, 8).jobs, 8);
  study.jobs = 2;
  EXPECT_EQ(parallelism_of(study, 8).threads, 4);
  study.jobs = 0;
  study.threads = 3;
  EXPECT_EQ(parallelism_of(study, 8).jobs, 2);
  EXPECT_EQ(parallelism_of(study, 1).jobs, 1);
}

}  // namespace
}  // namespace lamina::lab
