// Encoder–decoders train from recipes: on text with both objectives that have a source, and on tasks.
#include <gtest/gtest.h>

#include "lamina/arch/cost.h"
#include "lamina/base/files.h"
#include "lamina/text/load.h"
#include "lamina/train/pass.h"
#include "lamina/training.h"
#include "support/error_of.h"
#include "train/text_folder.h"

namespace lamina::train {
namespace {

using lamina::testing::error_of;

class EncoderDecoderTraining : public TextFolder {
 protected:
  static Recipe recipe(const std::string& base, const std::vector<std::string>& changes) {
    return read_recipe(R"({"architecture": {"base": ")" + base + R"(", "set": {"layers[0].repeat": 1,
      "encoder.layers[0].repeat": 1, "embedding.padding_token": null, "vocab_size": 0}},
      "batch": 4, "length": 48, "steps": 24, "optimizer": {"kind": "adamw", "lr": 5e-3},
      "schedule": {"kind": "constant"}, "eval_every": 12, "save_every": 6, "log_every": 1})",
                       "test", changes);
  }
  Recipe text_recipe(const std::string& base, std::vector<std::string> changes) const {
    changes.push_back("data.train=" + path("text.txt"));
    return recipe(base, changes);
  }
  Progress run(const std::string& name, int64_t stop_after = 1000) const {
    Trainer trainer(path(name), Device::cpu(1));
    trainer.run({.on_update = {}, .on_evaluation = {}, .on_save = {}, .stop = [&] {
                   return trainer.progress().step >= stop_after;
                 }});
    return trainer.progress();
  }
  bool same_file(const std::string& a, const std::string& b, const std::string& file) const {
    return read_text(path(a + file)) == read_text(path(b + file));
  }
};

TEST_F(EncoderDecoderTraining, LearnsAndResumesToTheBit) {
  const std::pair<const char*, const char*> cases[] = {{"t5-encoder-decoder-tiny", "span"}, {"bart-tiny", "denoise"}};
  for (const auto& [base, kind] : cases) {
    const std::vector<std::string> changes = {std::string("objective.kind=") + kind, "dropout.residual=0.1"};
    start_run(path("whole"), text_recipe(base, changes), {.force = true});
    const Progress first = run("whole", 13);
    const Progress last = run("whole");
    ASSERT_TRUE(first.validation_loss && last.validation_loss) << kind;
    EXPECT_LT(*last.validation_loss, *first.validation_loss) << kind;
    start_run(path("parts"), text_recipe(base, changes), {.force = true});
    run("parts", 5);
    run("parts", 17);
    run("parts");
    EXPECT_TRUE(same_file("whole", "parts", "/last/model.safetensors")) << kind;
    EXPECT_TRUE(same_file("whole", "parts", "/last/training.safetensors")) << kind;
  }
}

TEST_F(EncoderDecoderTraining, CheckpointingChangesNoBit) {
  const std::vector<std::string> changes = {"objective.kind=span", "steps=6", "dropout.attention=0.1"};
  start_run(path("stored"), text_recipe("t5-encoder-decoder-tiny", changes), {.force = true});
  run("stored");
  std::vector<std::string> more = changes;
  more.emplace_back("checkpointing=true");
  start_run(path("recomputed"), text_recipe("t5-encoder-decoder-tiny", more), {.force = true});
  run("recomputed");
  EXPECT_TRUE(same_file("stored", "recomputed", "/last/model.safetensors"));
}

TEST_F(EncoderDecoderTraining, TrainsInBf16WithAccumulation) {
  start_run(path("half"),
            text_recipe("bart-tiny", {"objective.kind=denoise", "dtype=bf16", "accumulation=2", "ema=0.9"}),
            {.force = true});
  const Progress first = run("half", 13);
  const Progress last = run("half");
  EXPECT_LT(*last.validation_loss, *first.validation_loss);
}

TEST_F(EncoderDecoderTraining, ARunKeepsItsStartToken) {
  const auto start_of = [&](const std::string& base, const std::string& kind, const std::string& token) {
    start_run(path("run"), text_recipe(base, {"objective.kind=" + kind, "data.tokenizer=unigram:300"}),
              {.force = true});
    const Recipe recipe = read_run_recipe(read_text(path("run/recipe.json")), "run");
    return recipe.architecture.encoder->start_token == text::load_tokenizer(path("run"))->id_of(token);
  };
  EXPECT_TRUE(start_of("t5-encoder-decoder-tiny", "span", "<pad>"));
  EXPECT_TRUE(start_of("bart-tiny", "denoise", "<s>"));
}

TEST_F(EncoderDecoderTraining, SolvesATaskOfSequences) {
  const Recipe task =
      recipe("t5-encoder-decoder-tiny", {"data.task={\"kind\": \"reversal\", \"symbols\": 4}", "length=8", "batch=64",
                                         "steps=300", "eval_every=300", "save_every=300", "data.examples=128",
                                         "data.longer=1", "schedule={\"kind\": \"cosine\", \"warmup\": 20}"});
  start_run(path("task"), task, {.force = true});
  const Progress done = run("task");
  ASSERT_TRUE(done.accuracy);
  EXPECT_GT(done.accuracy->tokens, 0.6) << "chance is 0.25";
}

TEST_F(EncoderDecoderTraining, CountsTheWorkOfEachStack) {
  Recipe one = resolve_recipe(recipe("bart-tiny", {"data.task=copy", "length=32"}), 20, "test");
  const PassLengths lengths = pass_lengths(one);
  EXPECT_EQ(lengths.source, 16);
  EXPECT_EQ(lengths.ids, 16);
  const double both = arch::source_and_target_flops(one.architecture, 16, 16);
  // A token of each stack, times the tokens.
  EXPECT_NEAR(both / (arch::flops_per_token(one.architecture, 16).forward() * 16), 1.0, 1e-12);
  EXPECT_NEAR(training_flops_per_token(one), 3 * both / 32, 1e-6 * both);
  EXPECT_LT(arch::source_and_target_flops(one.architecture, 8, 16), both);
}

TEST_F(EncoderDecoderTraining, RefusesWhatHasNoSource) {
  const auto message = [&](const std::vector<std::string>& changes) {
    return error_of([&] { start_run(path("none"), text_recipe("bart-tiny", changes), {.force = true}); });
  };
  for (const char* kind : {"causal", "prefix", "fim", "masked"}) {
    EXPECT_NE(message({std::string("objective.kind=") + kind}).find("span or denoise"), std::string::npos) << kind;
  }
  const std::string task =
      error_of([&] { start_run(path("none"), recipe("bart-tiny", {"data.task=mqar"}), {.force = true}); });
  EXPECT_NE(task.find("reversal"), std::string::npos) << task;
  EXPECT_NE(message({"objective.kind=span", "length=400"}).find("context"), std::string::npos);
}

}  // namespace
}  // namespace lamina::train
