// Training on synthetic tasks: evaluation, logs, resuming, and refused settings.
#include <gtest/gtest.h>

#include <cmath>

#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/base/files.h"
#include "lamina/training.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace lamina::train {
namespace {

using lamina::testing::error_of;
using lamina::testing::TemporaryFolder;

Recipe recipe(const std::vector<std::string>& changes = {}) {
  return read_recipe(R"({"architecture": {"base": "llama-tiny", "set": {"layers[0].repeat": 1}},
    "data": {"task": {"kind": "mqar", "pairs": 2, "questions": 3, "keys": 5, "values": 4}, "examples": 10, "longer": 2},
    "batch": 4, "length": 16, "steps": 6, "schedule": {"kind": "cosine", "warmup": 2}, "eval_every": 3, "eval_batch": 4,
    "save_every": 2, "log_every": 1})",
                     "task", changes);
}

Outcome run(const std::string& folder, int64_t stop_after = 1000) {
  Trainer trainer(folder, Device::cpu(1));
  return trainer.run({.on_update = {}, .on_evaluation = {}, .on_save = {}, .stop = [&] {
                        return trainer.progress().step >= stop_after;
                      }});
}

TEST(TaskTraining, ResumedEqualsUninterruptedToTheBit) {
  const TemporaryFolder folder;
  start_run(folder / "whole", recipe());
  EXPECT_EQ(run(folder / "whole"), Outcome::finished);
  start_run(folder / "parts", recipe());
  EXPECT_EQ(run(folder / "parts", 1), Outcome::stopped);
  EXPECT_EQ(run(folder / "parts", 4), Outcome::stopped);
  EXPECT_EQ(run(folder / "parts"), Outcome::finished);
  for (const char* file : {"last/model.safetensors", "last/training.safetensors", "best/model.safetensors"}) {
    EXPECT_TRUE(read_text(folder / (std::string("whole/") + file)) ==
                read_text(folder / (std::string("parts/") + file)))
        << file;
  }
}

TEST(TaskTraining, TheVocabularyIsTheTasksAndAccuracyIsLogged) {
  const TemporaryFolder folder;
  start_run(folder / "run", recipe());
  {
    Trainer trainer(folder / "run", Device::cpu(1));
    EXPECT_EQ(trainer.recipe().architecture.vocab_size, 10);
    EXPECT_EQ(trainer.run({}), Outcome::finished);
  }
  const std::string log = read_text(folder / "run/log.jsonl");
  for (const char* key : {"\"accuracy\":", "\"accuracy_exact\":", "\"loss_long\":", "\"accuracy_long\":"}) {
    EXPECT_NE(log.find(key), std::string::npos) << key << " in " << log;
  }
  // Opening the run again restores the measured accuracies.
  const Trainer again(folder / "run", Device::cpu(1));
  ASSERT_TRUE(again.progress().accuracy && again.progress().longer_accuracy);
  EXPECT_GE(again.progress().accuracy->tokens, again.progress().accuracy->examples);
}

/// Against whole logits, place by place.
TEST(TaskTraining, AccuracyAndLossAreThoseOfTheScoredPlaces) {
  const data::Task task = data::Mqar{.pairs = 2, .questions = 3, .keys = 5, .values = 4};
  arch::ArchSpec spec = arch::load_preset("llama-tiny");
  spec.vocab_size = data::task_vocab_size(task);
  nn::Model model(arch::resolve(spec), Device::cpu(1), {.seed = 3});
  const EvaluationData data = evaluation_of(task, data::TaskPart::validation, 11, 4, 16);
  ASSERT_EQ(data.batches, 3);
  Tally tally;
  double loss = 0;
  int asked = 0;
  int right = 0;
  int whole = 0;
  for (int64_t index = 0; index < data.batches; ++index) {
    const data::Batch batch = data.at(index);
    EXPECT_EQ(batch.rows, index < 2 ? 4 : 3);
    tally.add(model, batch, true);
    const auto logits =
        model.logits(Tensor::from(batch.ids, {batch.rows, batch.length}, Device::cpu(1))).to_vector<float>();
    for (int64_t row = 0; row < batch.rows; ++row) {
      bool all = true;
      for (int64_t i = 0; i < batch.length; ++i) {
        const int64_t target = batch.targets[static_cast<size_t>(row * batch.length + i)];
        if (target == kIgnoreIndex) continue;
        const float* z = logits.data() + (row * batch.length + i) * 10;
        double sum = 0;
        bool largest = true;
        for (int64_t v = 0; v < 10; ++v) {
          sum += std::exp(static_cast<double>(z[v]));
          largest = largest && z[v] <= z[target];
        }
        loss += std::log(sum) - static_cast<double>(z[target]);
        ++asked;
        right += largest ? 1 : 0;
        all = all && largest;
      }
      whole += all ? 1 : 0;
    }
  }
  const Measured measured = tally.result();
  EXPECT_EQ(asked, 33);
  EXPECT_NEAR(measured.loss, loss / asked, 1e-5);
  ASSERT_TRUE(measured.accuracy);
  EXPECT_NEAR(measured.accuracy->tokens, right / 33.0, 1e-12);
  EXPECT_NEAR(measured.accuracy->examples, whole / 11.0, 1e-12);
}

TEST(TaskTraining, LearnedPositionsHaveNoLongerExamples) {
  const TemporaryFolder folder;
  start_run(folder / "run", recipe({"architecture.position=learned", "architecture.context=16"}));
  const Trainer trainer(folder / "run", Device::cpu(1));
  EXPECT_TRUE(trainer.data().validation);
  EXPECT_FALSE(trainer.data().longer);
  EXPECT_NE(trainer.data().about.find("none of 32 tokens: the learned positions end at 16"), std::string::npos)
      << trainer.data().about;
}

TEST(TaskTraining, WhatCannotBeIsNamed) {
  const auto problem = [](const std::vector<std::string>& changes) {
    return error_of([&] { resolve_recipe(recipe(changes), 0, "task"); });
  };
  EXPECT_NE(problem({"data.train=a.txt"}).find("there is a text too"), std::string::npos);
  EXPECT_NE(problem({"data.task.pairs=20"}).find("a key for each pair"), std::string::npos);
  EXPECT_NE(problem({"length=8"}).find("make rows longer"), std::string::npos);
  EXPECT_NE(problem({"data.longer=0"}).find("data.longer"), std::string::npos);
  EXPECT_NE(error_of([] { recipe({"data.task.kind=mqr"}); }).find("one of copy"), std::string::npos);
  EXPECT_NO_THROW(resolve_recipe(recipe({"data.task=dyck"}), 0, "task"));
}

}  // namespace
}  // namespace lamina::train
