// Ranks that do not see the same run, data or checkpoint: all end with a message that names the rank.
#include "lamina/train/rank_agreement.h"
#include "lamina/comm/local.h"
#include "support/error_of.h"
#include "train/trainer_fixture.h"

namespace lamina::train {
namespace {

using testing::error_of;

class RankAgreement : public TrainerTest {
 protected:
  /// The folder of a new run on two ranks.
  std::string start(const std::string& name, const std::vector<std::string>& changes = {}) const {
    std::vector<std::string> all = {"layout.dp=2"};
    all.insert(all.end(), changes.begin(), changes.end());
    start_run(path(name), recipe(all));
    return path(name);
  }
  /// What each rank throws if rank r opens the run in folders[r].
  static std::vector<std::string> errors_of(const std::vector<std::string>& folders) {
    std::vector<std::string> errors(folders.size());
    comm::run_local_ranks(static_cast<int>(folders.size()), [&](comm::Communicator& c) {
      const auto rank = static_cast<size_t>(c.rank());
      const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
      errors[rank] =
          error_of([&] { Trainer(folders[rank], Device::cpu(1), {.lock = {}, .checking = {}, .communicator = own}); });
    });
    return errors;
  }
  static void expect_both(const std::vector<std::string>& errors, const std::string& part) {
    for (const std::string& error : errors) {
      EXPECT_NE(error.find("rank 1 (host this process) has another " + part), std::string::npos) << error;
    }
  }
};

TEST_F(RankAgreement, RanksThatSeeOneRunStart) {
  const std::string run = start("run");
  EXPECT_EQ(errors_of({run, run}), (std::vector<std::string>{"", ""}));
}

TEST_F(RankAgreement, AnotherRecipeIsNamed) {
  const std::string run = start("run");
  expect_both(errors_of({run, start("other", {"seed=7"})}), "recipe than rank 0");
  expect_both(errors_of({run, start("ordered", {"layout.order=ordered"})}), "recipe than rank 0");
}

TEST_F(RankAgreement, OtherDataAtTheSamePathAreNamed) {
  // Rank 1 runs on a host whose files have the same names and sizes, but other tokens: here, a file that changes when
  // rank 0 has opened it.
  for (const char* part : {"train", "validation"}) {
    const std::string run = start(str("run-", part));
    std::vector<std::string> errors(2);
    comm::run_local_ranks(2, [&](comm::Communicator& c) {
      const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
      const data::TokenFile file = data::TokenFile::open(path(str(part, ".bin")));
      data::TokenWriter writer(path("other.bin"), 24, 0);
      std::vector<int32_t> ids(static_cast<size_t>(file.size()), 5);
      writer.write(ids);
      writer.end_document();
      if (c.rank() == 1) writer.publish();
      c.barrier({.label = "published"});
      const data::TokenFile mine = c.rank() == 0 ? file : data::TokenFile::open(path("other.bin"));
      EXPECT_EQ(mine.size(), file.size());
      errors[static_cast<size_t>(c.rank())] = error_of([&] {
        check_ranks_agree(&c, {{str(part, " data"), std::to_string(mine.fingerprint()), "copy the files"}});
      });
    });
    expect_both(errors, str(part, " data than rank 0"));
  }
}

TEST_F(RankAgreement, AnotherCheckpointIsNamed) {
  const std::string run = start("run");
  fs::copy(run, path("copy"), fs::copy_options::recursive);
  comm::run_local_ranks(2, [&](comm::Communicator& c) {
    const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
    Trainer trainer(run, Device::cpu(1), {.lock = {}, .checking = {}, .communicator = own});
    trainer.run({.on_update = {}, .on_evaluation = {}, .on_save = {}, .stop = {}});
  });
  expect_both(errors_of({run, path("copy")}), "last checkpoint than rank 0");
}

}  // namespace
}  // namespace lamina::train
