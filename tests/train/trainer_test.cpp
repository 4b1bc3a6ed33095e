// Runs in folders: resuming, and errors of missing, damaged and foreign files.
#include "lamina/training.h"

#include <gtest/gtest.h>
#include <cmath>

#include "lamina/io/model_file.h"
#include "support/error_of.h"
#include "train/trainer_fixture.h"

namespace lamina::train {
namespace {

using lamina::testing::error_of;

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

TEST_F(TrainerTest, TrainRecipeDoesAWholeRun) {
  const Progress progress = train_recipe(recipe(), path("one_call"), Device::cpu(1));
  EXPECT_EQ(progress.step, 9);
  ASSERT_TRUE(progress.best_loss);
  start_run(path("two_calls"), recipe());
  EXPECT_EQ(run("two_calls"), Outcome::finished);
  EXPECT_TRUE(bytes("one_call/best/model.safetensors") == bytes("two_calls/best/model.safetensors"));

  // An existing run is replaced only if asked, and is back if the new one fails before its first update.
  EXPECT_NE(
      error_of([&] { train_recipe(recipe(), path("one_call"), Device::cpu(1)); }).find("a run already exists here"),
      std::string::npos);
  const std::string before = bytes("one_call/best/model.safetensors");
  TrainRecipeOptions options{.force = true};
  io::Checkpoint broken = io::read_model(path("one_call"), Device::cpu(1));
  broken.tensors[0].tensor.fill_(std::nan(""));
  io::write_native(path("broken"), broken);
  EXPECT_THROW(train_recipe(recipe({"from=" + path("broken")}), path("one_call"), Device::cpu(1), options), NotFinite);
  EXPECT_TRUE(bytes("one_call/best/model.safetensors") == before);
  options.watcher.stop = [] { return true; };
  EXPECT_EQ(train_recipe(recipe(), path("one_call"), Device::cpu(1), options).step, 1);
  EXPECT_FALSE(path_exists(path("one_call/best")));
}

TEST_F(TrainerTest, AnEvaluationThatWasCutShortIsMadeUpFor) {
  start_run(path("run"), recipe());
  {
    int asked = 0;
    Trainer trainer(path("run"), Device::cpu(1));
    // Polled once after each of three updates, then during the evaluation after the fourth.
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
  EXPECT_EQ(weights[0].tensor.to_vector<float>(), model.tensors[0].tensor.to_vector<float>());
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

/// Two texts of the same characters but one, prepared by characters, and a run on the first.
class TokenizerMismatch : public TrainerTest {
 protected:
  void SetUp() override {
    TrainerTest::SetUp();
    std::string text;
    for (int i = 0; i < 100; ++i) text += "abc cab bac\n";
    write_text(path("a.txt"), text);
    write_text(path("b.txt"), text + "d\n");
    for (const char* name : {"a", "b"}) {
      data::PrepareOptions options;
      options.sources = {path(std::string(name) + ".txt")};
      options.folder = path(name);
      data::prepare(options);
    }
    start_run(path("run"), from_tokens({"data.train=" + path("a"), "steps=1", "schedule=constant"}));
    run("run");
  }
  Recipe from_tokens(std::vector<std::string> changes) const {
    changes.insert(changes.begin(), "data.validation=");
    return recipe(changes);
  }
  /// The message of starting a run with these changes; it names the tokenizers of both token files.
  void expect_both(const std::vector<std::string>& changes) const {
    const std::string message = error_of([&] { start_run(path("x"), from_tokens(changes)); });
    for (const char* name : {"a", "b"}) {
      char hash[17];
      std::snprintf(hash, sizeof hash, "%016llx",
                    static_cast<unsigned long long>(
                        data::TokenFile::open(path(std::string(name) + "/train.bin")).tokenizer_hash()));
      EXPECT_NE(message.find(hash), std::string::npos) << name << " is not named in: " << message;
    }
    EXPECT_NE(message.find("; "), std::string::npos) << message;
    EXPECT_FALSE(fs::exists(path("x")));
  }
};

TEST_F(TokenizerMismatch, IsRefusedWithBothNamed) {
  expect_both({"from=" + path("run"), "data.train=" + path("b")});
  expect_both({"from=" + path("run"), "data.train=" + path("b/train.bin")});
  expect_both({"from=" + path("run"), "data.train=" + path("a.txt"), "data.tokenizer=" + path("b")});
  expect_both({"data.train=" + path("a/train.bin"), "data.validation=" + path("b/validation.bin")});
  expect_both({"data.train=" + path("a/train.bin"), "data.tokenizer=" + path("b")});
  fs::copy_file(path("b/tokenizer.json"), path("a/tokenizer.json"), fs::copy_options::overwrite_existing);
  expect_both({"data.train=" + path("a/train.bin")});
}

TEST_F(TokenizerMismatch, AModelTrainedFurtherKeepsItsTokenizer) {
  for (const char* kind : {"char", "bpe:300"}) {
    const std::string message = error_of([&] {
      start_run(path("x"), from_tokens({"from=" + path("run"), "data.train=" + path("a.txt"),
                                        std::string("data.tokenizer=") + kind}));
    });
    EXPECT_NE(message.find("learns a new vocabulary"), std::string::npos) << message;
    EXPECT_NE(message.find("(characters, 5 tokens"), std::string::npos) << message;
    EXPECT_NE(message.find("leave data.tokenizer empty"), std::string::npos) << message;
  }
  start_run(path("same"), from_tokens({"from=" + path("run"), "data.train=" + path("a.txt"), "schedule=constant"}));
  EXPECT_EQ(bytes("same/tokenizer.json"), bytes("a/tokenizer.json"));
  EXPECT_EQ(bytes("same/tokenizer_config.json"), bytes("a/tokenizer_config.json"));
  fs::remove(path("run/best/tokenizer.json"));
  fs::remove(path("run/last/tokenizer.json"));
  EXPECT_NE(error_of([&] {
              start_run(path("x"), from_tokens({"from=" + path("run"), "data.train=" + path("a.txt")}));
            }).find("has no tokenizer next to it"),
            std::string::npos);
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
  EXPECT_NE(error_of([&] { start_run(path("run"), recipe()); }).find("a run already exists here"), std::string::npos);
  fs::create_directories(path("other/thing"));
  EXPECT_NE(error_of([&] { start_run(path("other"), recipe(), {.force = true}); }).find("is not a run"),
            std::string::npos);
  EXPECT_TRUE(fs::exists(path("other/thing")));
}

TEST_F(TrainerTest, OneProcessAtATime) {
  start_run(path("run"), recipe());
  const RunFolder held(path("run"));
  EXPECT_NE(error_of([&] { Trainer(path("run"), Device::cpu(1)); }).find("another process is training here"),
            std::string::npos);
}

TEST_F(TrainerTest, ARunThatIsBeingTrainedIsNotReplaced) {
  start_run(path("run"), recipe());
  run("run", 4);
  {
    const RunFolder held(path("run"));
    EXPECT_NE(error_of([&] { start_run(path("run"), recipe(), {.force = true}); }).find("another process is training"),
              std::string::npos);
  }
  EXPECT_TRUE(fs::exists(path("run/last/state.json")));
  const RunLock lock = start_run(path("run"), recipe(), {.force = true});  // locked from its first moment
  EXPECT_NE(error_of([&] { RunFolder(path("run")); }).find("another process is training"), std::string::npos);
}

TEST_F(TrainerTest, AReplacedRunIsDeletedAfterTheFirstUpdate) {
  start_run(path("run"), recipe());
  run("run", 4);
  RunLock lock = start_run(path("run"), recipe(), {.force = true});
  EXPECT_FALSE(fs::exists(path("run/last")));
  EXPECT_TRUE(fs::exists(path(".run.replaced/last/state.json")));
  EXPECT_EQ(newest_run(folder_.string()), path("run"));
  {
    Trainer trainer(path("run"), Device::cpu(1), {.lock = std::move(lock), .accept_new_data = false, .checking = {}});
    EXPECT_TRUE(fs::exists(path(".run.replaced")));
    trainer.run({.on_update = {}, .on_evaluation = {}, .on_save = {}, .stop = [] { return true; }});
    EXPECT_EQ(trainer.progress().step, 1);
    EXPECT_FALSE(fs::exists(path(".run.replaced")));
  }
  EXPECT_FALSE(restore_replaced_run(path("run")));
}

TEST_F(TrainerTest, AReplacedRunComesBackIfTheNewOneFailsBeforeItsFirstUpdate) {
  start_run(path("run"), recipe());
  run("run", 4);
  const std::string old = bytes("run/last/training.safetensors");
  start_run(path("run"), recipe({"seed=7"}), {.force = true});
  fs::rename(path("train.bin"), path("gone.bin"));
  EXPECT_NE(error_of([&] { run("run"); }), "");
  EXPECT_TRUE(restore_replaced_run(path("run")));
  EXPECT_TRUE(bytes("run/last/training.safetensors") == old);
  // Recipes that cannot start do not touch it at all.
  EXPECT_NE(error_of([&] { start_run(path("run"), recipe(), {.force = true}); }), "");
  EXPECT_TRUE(bytes("run/last/training.safetensors") == old);
  fs::rename(path("gone.bin"), path("train.bin"));
  // As after a kill before the first update: the next start finds the old run.
  start_run(path("run"), recipe({"seed=7"}), {.force = true});
  EXPECT_NE(error_of([&] { start_run(path("run"), recipe()); }).find("a run already exists here"), std::string::npos);
  EXPECT_TRUE(bytes("run/last/training.safetensors") == old);
  fs::rename(path("run"), path(".run.replaced"));  // killed between the two renames
  EXPECT_TRUE(restore_replaced_run(path("run/")));
  EXPECT_TRUE(bytes("run/last/training.safetensors") == old);
}

/// Token ids 0, 1, 2, … of `tokenizer`.
void write_tokens(const std::string& path, int count, uint64_t tokenizer) {
  data::TokenWriter writer(path, 24, tokenizer);
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(i % 23);
  writer.write(ids);
  writer.publish();
}

TEST_F(TrainerTest, OtherDataIsRefusedWhenARunIsResumed) {
  write_tokens(path("train.bin"), 400, 5);
  start_run(path("run"), recipe());
  run("run", 4);
  const auto resume = [&](bool accept) {
    return error_of(
        [&] { Trainer(path("run"), Device::cpu(1), {.lock = {}, .accept_new_data = accept, .checking = {}}); });
  };
  EXPECT_EQ(resume(false), "");
  const std::string before = bytes("train.bin");
  write_tokens(path("train.bin"), 300, 5);
  EXPECT_NE(resume(false).find("--accept-new-data"), std::string::npos) << resume(false);
  write_text(path("train.bin"), before);
  EXPECT_EQ(resume(false), "");
  write_tokens(path("train.bin"), 400, 6);
  EXPECT_NE(resume(true).find("A run keeps its tokenizer"), std::string::npos) << resume(true);
  EXPECT_NE(resume(false).find("0000000000000006"), std::string::npos) << resume(false);
  write_tokens(path("train.bin"), 300, 5);
  EXPECT_EQ(resume(true), "");
  EXPECT_EQ(resume(false), "");  // the new data is the run's from now on
  fs::rename(path("validation.bin"), path("old.bin"));
  write_tokens(path("validation.bin"), 100, 0);
  EXPECT_NE(resume(false).find("validation data changed"), std::string::npos) << resume(false);
}

TEST_F(TrainerTest, ChangedTokensAreFoundAtTheStart) {
  start_run(path("run"), recipe());
  run("run", 4);
  std::string tokens = bytes("train.bin");
  tokens[200] = static_cast<char>(tokens[200] ^ 1);
  write_text(path("train.bin"), tokens);
  EXPECT_NE(error_of([&] { run("run"); }).find("its checksum differs"), std::string::npos);
  // Files without a checksum are compared with what the run began with.
  const std::string raw = tokens.substr(64, 800);
  write_text(path("raw.bin"), raw);
  start_run(path("raw"), recipe({"data.train=" + path("raw.bin")}));
  run("raw", 4);
  write_text(path("raw.bin"), std::string(2, '\1') + raw.substr(2));
  EXPECT_NE(error_of([&] { run("raw"); }).find("training data changed"), std::string::npos);
}

TEST_F(TrainerTest, AVanishedDataFileIsNamed) {
  start_run(path("run"), recipe());
  fs::remove(path("train.bin"));
  EXPECT_NE(
      error_of([&] { Trainer(path("run"), Device::cpu(1)); }).find("train.bin: the run's data.train does not exist"),
      std::string::npos);
  EXPECT_NE(error_of([&] { RunFolder(path("nothing")); }).find("is not the folder of a run"), std::string::npos);
}

TEST_F(TrainerTest, AFolderThatMayNotBeWrittenIsNamed) {
  // Nobody may make folders there, root included.
  const std::string message = error_of([&] { start_run("/proc/lamina_run", recipe()); });
  EXPECT_NE(message.find("/proc/lamina_run: cannot be created"), std::string::npos) << message;
}

TEST_F(TrainerTest, LeftoversOfAKilledProcessAreClearedUp) {
  start_run(path("run"), recipe());
  run("run", 4);
  fs::rename(path("run/last"), path("run/last.999999999-0.tmp.old"));  // between the two renames
  fs::create_directories(path("run/best.999999999-0.tmp"));
  // belongs to a running process
  const std::string others = path("run/last.") + std::to_string(::getppid()) + "-0.tmp";
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
