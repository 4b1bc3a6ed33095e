// Power: planted defects are found, and equal architectures come out as equivalent, at a size that takes seconds.
#include <gtest/gtest.h>

#include "lamina/base/files.h"
#include "lamina/data/synthetic.h"
#include "lamina/lab/run/run_study.h"
#include "lamina/lab/run/statistics.h"
#include "support/temporary_folder.h"

namespace lamina::lab {
namespace {

using lamina::testing::TemporaryFolder;

class PlantedDefectTest : public ::testing::Test {
 protected:
  /// A study of small models, one run at a time on one thread; `rest` are its other keys.
  Results run(const std::string& rest, const std::vector<std::string>& recipe) const {
    std::vector<std::string> changes = {"steps=40", "eval_every=20", "save_every=0", "length=32"};
    changes.insert(changes.end(), recipe.begin(), recipe.end());
    const Study study =
        read_study(R"({"mode": "ablate", "base_name": "base", "decode": false, "threads": 1, "jobs": 1, )" + rest + "}",
                   "power", changes);
    return run_study(study, {.folder = folder_ / "study", .command = "test", .watcher = {}, .preparing = {}});
  }

  /// Power of the test, at Holm's strictest level, if the true effect is the measured one.
  static double power_of(const Results& results, size_t variant) {
    std::vector<double> differences;
    for (size_t i = 0; i < results.study.seeds.size(); ++i) {
      differences.push_back(*results.variants[variant].runs[i].best_loss - *results.variants[0].runs[i].best_loss);
    }
    return paired_power(mean_of(differences) / *deviation_of(differences), differences.size(),
                        kLevel / static_cast<double>(results.variants.size() - 1));
  }

  static const MetricSummary& loss_of(const Results& results, size_t variant) {
    return results.variants[variant].summary.at("best_loss");
  }

  TemporaryFolder folder_;
};

// Copying needs the distance between tokens. A RoPE base of 10,000 instead of 100 makes neighbours hard to distinguish
// in heads of width 8. Norms with ε = 0.1 hardly scale a residual stream that starts with a mean square of 0.0004.
TEST_F(PlantedDefectTest, FindsAWrongRopeBaseAndAWrongEpsilonButNotAnotherWriting) {
  const Results results = run(R"("seeds": 5, "base": {"base": "llama-tiny",
      "set": {"layers[0].repeat": 1, "position.theta": 100}}, "variants": [
      {"name": "rope base x100", "set": ["position.theta=10000"]},
      {"name": "epsilon 0.1", "set": ["norm.eps=0.1"]},
      {"name": "norms that store gamma - 1", "set": ["norm.offset=1"]}])",
                              {R"(data.task={"kind": "copy"})", "batch=16", "optimizer.lr=0.01"});
  EXPECT_EQ(loss_of(results, 1).mark, "worse");
  EXPECT_LT(*loss_of(results, 1).p, 0.01);
  EXPECT_GE(power_of(results, 1), 0.9);
  EXPECT_EQ(loss_of(results, 2).mark, "worse");
  EXPECT_LT(*loss_of(results, 2).p, 0.01);
  EXPECT_GE(power_of(results, 2), 0.9);
  EXPECT_EQ(loss_of(results, 3).mark, "no difference");
  EXPECT_NE(*loss_of(results, 3).difference, 0);  // rounding differs, so the equivalence test decides
  EXPECT_LT(*loss_of(results, 3).p_equivalence, 0.01);
}

// At a high learning rate four layers train worse without the factor on their branches.
TEST_F(PlantedDefectTest, FindsAMissingResidualScale) {
  write_text(folder_ / "play.txt", data::synthetic_play(20000, 3));
  const Results results = run(R"("seeds": 5, "base": {"base": "llama-tiny",
      "set": {"layers[0].repeat": 4, "layers[0].pattern[0].residual_scale": 0.25}}, "variants": [
      {"name": "no residual scale", "set": ["layers[0].pattern[0].residual_scale=1"]}])",
                              {"data.train=" + (folder_ / "play.txt"), "batch=8", "optimizer.lr=0.03"});
  EXPECT_EQ(loss_of(results, 1).mark, "worse");
  EXPECT_LT(*loss_of(results, 1).p, 0.05);
  EXPECT_GE(power_of(results, 1), 0.9);
}

}  // namespace
}  // namespace lamina::lab
