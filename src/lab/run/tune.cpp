#include "lamina/lab/run/tune.h"

#include "lamina/lab/run/search.h"
#include "lamina/lab/run/statistics.h"

namespace lamina::lab {
namespace {

/// Mean of the best losses; empty if a run diverged or has no loss.
std::optional<double> mean_best_loss(std::span<const RunOutcome> outcomes) {
  std::vector<double> losses;
  for (const RunOutcome& outcome : outcomes) {
    if (!outcome.result || outcome.result->diverged || !outcome.result->best_loss) return {};
    losses.push_back(*outcome.result->best_loss);
  }
  return mean_of(losses);
}

void choose(VariantResult& variant) {
  for (size_t i = 0; i < variant.trials.size(); ++i) {
    if (!variant.trials[i].loss) continue;
    if (!variant.chosen_trial || *variant.trials[i].loss < *variant.trials[*variant.chosen_trial].loss) {
      variant.chosen_trial = i;
    }
  }
  if (!variant.chosen_trial) {
    variant.cannot = "every tuning run diverged or failed; try lower learning rates";
    return;
  }
  const std::vector<std::string>& changes = variant.trials[*variant.chosen_trial].changes;
  variant.variant.recipe.insert(variant.variant.recipe.end(), changes.begin(), changes.end());
}

}  // namespace

bool tune(const Planner& planner, Runner& runner, Results& results) {
  const std::vector<std::vector<std::string>> combinations = tuning_changes(results.study.tuning);
  if (combinations.empty()) return true;
  const std::vector<int64_t>& seeds = results.study.tuning.seeds;
  std::vector<RunPlan> plans;
  for (const VariantResult& variant : results.variants) {
    for (const std::vector<std::string>& changes : combinations) {
      for (const int64_t seed : seeds) {
        plans.push_back(planner.plan(variant, seed, changes));
        plans.back().title += ", tuning";
        for (const std::string& change : changes) plans.back().title += " " + change;
      }
    }
  }
  for (const RunPlan& plan : distinct(plans).plans) runner.expect(1, plan.work);
  const auto outcomes = run_all(runner, plans);
  if (!outcomes) return false;
  size_t next = 0;
  for (VariantResult& variant : results.variants) {
    for (const std::vector<std::string>& changes : combinations) {
      const auto trial = std::span(*outcomes).subspan(next, seeds.size());
      variant.trials.push_back({changes, mean_best_loss(trial)});
      next += seeds.size();
    }
    choose(variant);
  }
  return true;
}

}  // namespace lamina::lab
