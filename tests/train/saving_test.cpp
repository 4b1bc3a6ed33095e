// Checkpoints written while training continues: state after a failed save, and memory of the copy.
#include <sys/resource.h>

#include <csignal>

#include "lamina/io/safetensors.h"
#include "support/error_of.h"
#include "train/trainer_fixture.h"

namespace lamina::train {
namespace {

using lamina::testing::error_of;

class SavingTest : public TrainerTest {};

TEST_F(SavingTest, AFullDiskKeepsTheOldCheckpoint) {
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
  EXPECT_NE(message.find("cannot be written (File too large)"), std::string::npos) << message;
  EXPECT_NE(message.find("ended after update 9"), std::string::npos) << "a failed save ended the run: " << message;
  EXPECT_TRUE(bytes("run/last/training.safetensors") == before);
  // The disk has space again before the last save: the failures were reported, and the run ends as if nothing was.
  ::setrlimit(RLIMIT_FSIZE, &tiny);
  std::vector<std::string> failed;
  std::vector<std::string> saved;
  {
    Trainer trainer(path("run"), Device::cpu(1));
    const Outcome outcome =
        trainer.run({.on_update =
                         [&](const UpdateReport& report) {
                           if (report.progress.step == 9) ::setrlimit(RLIMIT_FSIZE, &old);
                         },
                     .on_evaluation = {},
                     .on_save = [&](const SaveReport& report) { saved.push_back(report.folder); },
                     .stop = {},
                     .on_save_failed = [&](const SaveFailure& failure) { failed.push_back(failure.folder); }});
    ::setrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, handler);
    EXPECT_EQ(outcome, Outcome::finished);
  }
  EXPECT_GE(std::count(failed.begin(), failed.end(), path("run/last")), 1);
  EXPECT_EQ(std::count(saved.begin(), saved.end(), path("run/last")), 1);
  start_run(path("calm"), recipe());
  EXPECT_EQ(run("calm"), Outcome::finished);
  for (const char* file : {"last/model.safetensors", "last/training.safetensors"}) {
    EXPECT_TRUE(bytes(std::string("calm/") + file) == bytes(std::string("run/") + file)) << file;
  }
}

TEST_F(SavingTest, ABestCheckpointThatCouldNotBeSavedIsNotForgotten) {
  start_run(path("run"), recipe());
  write_text(path("run/best"), "in the way");
  Trainer trainer(path("run"), Device::cpu(1));
  std::vector<int64_t> failed;
  const std::string message = error_of([&] {
    trainer.run({.on_update = {},
                 .on_evaluation = {},
                 .on_save = {},
                 .stop = {},
                 .on_save_failed = [&](const SaveFailure& failure) {
                   failed.push_back(failure.progress.step);
                   EXPECT_FALSE(trainer.progress().best_loss) << "no best checkpoint is on the disk";
                 }});
  });
  EXPECT_EQ(failed, (std::vector<int64_t>{4, 8, 9})) << "each evaluation tries again";
  EXPECT_NE(message.find("run/best"), std::string::npos) << message;
  EXPECT_TRUE(fs::exists(path("run/last/state.json")));
}

TEST_F(SavingTest, TheEstimateHoldsTheCopyThatIsSaved) {
  for (const std::vector<std::string>& changes :
       std::vector<std::vector<std::string>>{{"ema=0"}, {"dtype=bf16"}, {"optimizer.kind=sgd"}}) {
    start_run(path("run"), recipe(changes), {.force = true});
    Recipe resolved;
    {
      Trainer trainer(path("run"), Device::cpu(1));
      trainer.run({.on_update = {}, .on_evaluation = {}, .on_save = {}, .stop = [] { return true; }});
      resolved = trainer.recipe();
    }
    double data = 0;
    for (const char* file : {"run/last/model.safetensors", "run/last/training.safetensors"}) {
      for (const NamedTensor& entry : io::SafetensorsFile::open(path(file), Device::cpu(1)).tensors()) {
        data += static_cast<double>(entry.tensor.nbytes());
      }
    }
    EXPECT_EQ(save_copy(resolved), data) << changes[0];
    EXPECT_EQ(training_memory(resolved).saving, data);
    EXPECT_EQ(training_memory(resolved, DeviceKind::cuda).saving, 0);
    resolved.save_in_background = false;
    EXPECT_EQ(save_copy(resolved), 0);
  }
}

}  // namespace
}  // namespace lamina::train
