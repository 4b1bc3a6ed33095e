// Runs in folders: resuming, and what goes wrong with files.
#include "lamina/training.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <span>

#include "lamina/base/files.h"
#include "lamina/data/token_writer.h"
#include "lamina/io/model_file.h"
#include "support/error_of.h"

namespace lamina::train {
namespace {

namespace fs = std::filesystem;
using lamina::testing::error_of;

class TrainerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("lamina_trainer_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    for (const char* name : {"train", "validation"}) {
      data::TokenWriter writer(path(std::string(name) + ".bin"), 24, 0);
      std::vector<int32_t> ids;
      for (int i = 0; i < 400; ++i) ids.push_back((i * i + i / 7) % 23);
      for (size_t i = 0; i < 8; ++i) {
        writer.write(std::span(ids).subspan(50 * i, 50));
        writer.end_document();
      }
      writer.publish();
    }
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// Dropout, accumulation and an average are on.
  Recipe recipe(const std::vector<std::string>& changes = {}) const {
    std::vector<std::string> all = {"data.train=" + path("train.bin"), "data.validation=" + path("validation.bin")};
    all.insert(all.end(), changes.begin(), changes.end());
    return read_recipe(R"({"architecture": {"base": "llama-tiny", "set": {"layers[0].repeat": 1, "vocab_size": 24}},
      "batch": 2, "length": 12, "steps": 9, "accumulation": 2, "dropout": {"embedding": 0.1, "attention": 0.1, "residual": 0.1},
      "ema": 0.9, "schedule": {"kind": "cosine", "warmup": 2}, "eval_every": 4, "save_every": 3, "log_every": 1})",
                       "test", all);
  }

  /// Runs to the end, or until `stop_after` updates were made.
  Outcome run(const std::string& name, int64_t stop_after = 1000) const {
    Trainer trainer(path(name), Device::cpu(1));
    return trainer.run({.on_update = {}, .on_evaluation = {}, .on_save = {}, .stop = [&] {
                          return trainer.progress().step >= stop_after;
                        }});
  }

  std::string bytes(const std::string& file) const { return read_text(path(file)); }

  fs::path folder_;
};

TEST_F(TrainerTest, ResumedEqualsUninterruptedToTheBit) {
  const std::vector<std::vector<std::string>> variants = {{"optimizer.kind=adamw", "checkpointing=true"},
                                                          {"optimizer.kind=muon", "dtype=bf16"}};
  for (const std::vector<std::string>& changes : variants) {
    start_run(path("whole"), recipe(changes), {.force = true});
    EXPECT_EQ(run("whole"), Outcome::finished);
    start_run(path("parts"), recipe(changes), {.force = true});
    EXPECT_EQ(run("parts", 2), Outcome::stopped);
    EXPECT_EQ(run("parts", 7), Outcome::stopped);
    EXPECT_EQ(run("parts"), Outcome::finished);
    for (const char* file : {"last/model.safetensors", "last/training.safetensors", "best/model.safetensors"}) {
      EXPECT_TRUE(bytes(std::string("whole/") + file) == bytes(std::string("parts/") + file))
          << changes[0] << ": " << file;
    }
  }
}

TEST_F(TrainerTest, AnEvaluationThatWasCutShortIsMadeUpFor) {
  start_run(path("run"), recipe());
  {
    int asked = 0;
    Trainer trainer(path("run"), Device::cpu(1));
    // Asked once after each of three updates, then inside the evaluation behind the fourth.
    EXPECT_EQ(trainer.run({.on_update = {}, .on_evaluation = {}, .on_save = {}, .stop = [&] { return ++asked > 3; }}),
              Outcome::stopped);
    EXPECT_EQ(trainer.progress().step, 4);
    EXPECT_FALSE(trainer.progress().validation_loss);
  }
  EXPECT_EQ(run("run"), Outcome::finished);
  EXPECT_NE(bytes("run/log.jsonl").find("{\"step\":4,\"validation_loss\""), std::string::npos);
}

TEST_F(TrainerTest, TheLogHoldsEveryStepOnceAfterAResume) {
  start_run(path("run"), recipe());
  run("run", 5);
  // As after kill -9: the checkpoint is older than the log.
  std::string log = bytes("run/log.jsonl");
  write_text(path("run/log.jsonl"), log + R"({"step":6,"loss":1})" + "\n" + R"({"step":7,"lo)");
  run("run");
  log = bytes("run/log.jsonl");
  for (int step = 1; step <= 9; ++step) {
    const std::string entry = "{\"step\":" + std::to_string(step) + ",\"loss\"";
    const size_t first = log.find(entry);
    ASSERT_NE(first, std::string::npos) << step;
    EXPECT_EQ(log.find(entry, first + 1), std::string::npos) << step;
  }
  EXPECT_NE(log.find("\"validation_loss\""), std::string::npos);
}

TEST_F(TrainerTest, ARunIsAModelAndCanBeTrainedFurther) {
  start_run(path("run"), recipe());
  run("run");
  const io::Checkpoint model = io::read_model(path("run"), Device::cpu(1));
  EXPECT_EQ(io::model_place(path("run")), path("run/best"));
  EXPECT_EQ(model.spec.vocab_size, 24);
  start_run(
      path("further"),
      read_recipe(R"({"architecture": "gpt2-tiny", "steps": 1, "batch": 2, "length": 12, "schedule": "constant"})",
                  "further", {"from=" + path("run"), "data.train=" + path("train.bin")}));
  Trainer trainer(path("further"), Device::cpu(1));
  const nn::StateDict weights = trainer.learner().model().state_dict();
  EXPECT_EQ(weights[0].second.to_vector<float>(), model.tensors[0].second.to_vector<float>());
  EXPECT_EQ(trainer.run({}), Outcome::finished);
}

TEST_F(TrainerTest, TextsBecomeTokensAndTheirTokenizerStaysWithTheModel) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "abc cab " + std::to_string(i % 5) + "\n";
  write_text(path("a.txt"), text);
  write_text(path("b.txt"), "cab abc 3\ncab abc 4\n");
  const std::vector<std::string> changes = {"data.train=" + path("a.txt"), "data.validation=" + path("b.txt"),
                                            "data.tokenizer=char", "steps=1", "schedule=constant"};
  start_run(path("run"), recipe(changes));
  {
    Trainer trainer(path("run"), Device::cpu(1));
    EXPECT_EQ(trainer.recipe().architecture.vocab_size, 10);  // newline, space, 0 to 4, a to c
    EXPECT_EQ(trainer.data().train_tokens->size(), 600);
    EXPECT_EQ(trainer.data().validation_tokens->size(), 20);
    EXPECT_EQ(trainer.run({}), Outcome::finished);
  }
  EXPECT_EQ(bytes("run/tokenizer.json"), bytes("run/best/tokenizer.json"));
  // Another text, with fewer characters, in the first one's tokens; its own end is the validation data.
  write_text(path("c.txt"), "ab ba ab ba ab ba ab ba ab ba\n");
  start_run(path("further"), recipe({"from=" + path("run"), "data.train=" + path("c.txt"),
                                     "data.validation=", "data.tokenizer=", "length=2", "schedule=constant"}));
  const Trainer further(path("further"), Device::cpu(1));
  EXPECT_EQ(further.recipe().architecture.vocab_size, 10);
  EXPECT_EQ(further.data().train_tokens->size() + further.data().validation_tokens->size(), 30);
  EXPECT_EQ(bytes("run/tokenizer.json"), bytes("further/tokenizer.json"));
}

TEST_F(TrainerTest, EveryOrderOfBatchesTrains) {
  for (const char* order : {"sequential", "shuffled", "packed"}) {
    start_run(path(order), recipe({std::string("data.order=") + order, "steps=3", "eval_every=0", "save_every=0"}));
    Trainer trainer(path(order), Device::cpu(1));
    EXPECT_EQ(trainer.run({}), Outcome::finished) << order;
    EXPECT_NEAR(trainer.progress().loss, std::log(24.0), 0.5) << order;
  }
}

TEST_F(TrainerTest, WhatIsThereIsNotOverwritten) {
  start_run(path("run"), recipe());
  EXPECT_NE(error_of([&] { start_run(path("run"), recipe()); }).find("a run is there already"), std::string::npos);
  fs::create_directories(path("other/thing"));
  EXPECT_NE(error_of([&] { start_run(path("other"), recipe(), {.force = true}); }).find("is no run"),
            std::string::npos);
  EXPECT_TRUE(fs::exists(path("other/thing")));
}

TEST_F(TrainerTest, OneProcessAtATime) {
  start_run(path("run"), recipe());
  const RunFolder held(path("run"));
  EXPECT_NE(error_of([&] { Trainer(path("run"), Device::cpu(1)); }).find("another process is training here"),
            std::string::npos);
}

TEST_F(TrainerTest, AVanishedDataFileIsNamed) {
  start_run(path("run"), recipe());
  fs::remove(path("train.bin"));
  EXPECT_NE(
      error_of([&] { Trainer(path("run"), Device::cpu(1)); }).find("train.bin: the run's data.train is not there"),
      std::string::npos);
  EXPECT_NE(error_of([&] { RunFolder(path("nothing")); }).find("is not the folder of a run"), std::string::npos);
}

TEST_F(TrainerTest, AFullDiskKeepsTheOldCheckpoint) {
  start_run(path("run"), recipe());
  run("run", 4);
  const std::string before = bytes("run/last/training.safetensors");
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tiny{.rlim_cur = 20000, .rlim_max = old.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &tiny);
  const std::string message = error_of([&] { run("run"); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("cannot be written (File too large)"), std::string::npos) << message;
  EXPECT_TRUE(bytes("run/last/training.safetensors") == before);
  EXPECT_EQ(run("run"), Outcome::finished);
}

TEST_F(TrainerTest, AFolderThatMayNotBeWrittenIsNamed) {
  // Nobody may make folders there, root included.
  const std::string message = error_of([&] { start_run("/proc/lamina_run", recipe()); });
  EXPECT_NE(message.find("/proc/lamina_run: cannot be made"), std::string::npos) << message;
}

TEST_F(TrainerTest, LeftoversOfAKilledProcessAreClearedUp) {
  start_run(path("run"), recipe());
  run("run", 4);
  fs::rename(path("run/last"), path("run/last.999999999-0.tmp.old"));  // between the two renames
  fs::create_directories(path("run/best.999999999-0.tmp"));
  const std::string others = path("run/last.") + std::to_string(::getppid()) + "-0.tmp";  // of a process that is there
  fs::create_directories(others);
  {
    const RunFolder folder(path("run"));
    EXPECT_TRUE(fs::exists(path("run/last/state.json")));
    EXPECT_FALSE(fs::exists(path("run/last.999999999-0.tmp.old")));
    EXPECT_FALSE(fs::exists(path("run/best.999999999-0.tmp")));
    EXPECT_TRUE(fs::exists(others));
  }
  EXPECT_EQ(run("run"), Outcome::finished);
}

}  // namespace
}  // namespace lamina::train
