#include "lamina/lab/run/budget.h"

#include <cmath>

#include "lamina/arch/plan.h"
#include "lamina/lab/run/search.h"

namespace lamina::lab {
namespace {

constexpr int64_t kTimedUpdates = 20;
constexpr double kMostSteps = 1 << 30;

/// Seconds per update of every variant: the median of short runs. Empty if stopped.
std::vector<double> measured_seconds(const Study& study, const std::vector<VariantResult>& variants,
                                     const Planner& planner, Runner& runner) {
  std::vector<RunPlan> plans;
  for (const VariantResult& variant : variants) {
    plans.push_back(planner.plan(variant, study.seeds[0],
                                 {str("steps=", kTimedUpdates), "eval_every=0", "save_every=0", "schedule.warmup=0"}));
    plans.back().title = variant.variant.name + ", timing";
  }
  for (const RunPlan& plan : distinct(plans).plans) runner.expect(1, plan.work);
  const auto outcomes = run_all(runner, plans);
  if (!outcomes) return {};
  std::vector<double> seconds;
  for (size_t i = 0; i < plans.size(); ++i) {
    const RunOutcome& outcome = (*outcomes)[i];
    LAMINA_CHECK(outcome.result && outcome.result->tokens_per_second, plans[i].title, ": ",
                 outcome.cannot.empty() ? "diverged" : outcome.cannot,
                 "; state the budget in updates, tokens or flops");
    seconds.push_back(static_cast<double>(plans[i].recipe.tokens_per_step()) / *outcome.result->tokens_per_second);
  }
  return seconds;
}

/// What an update of a variant spends, in the unit of the budget.
double cost_of_update(BudgetUnit unit, const RunPlan& plan) {
  if (unit == BudgetUnit::tokens) return static_cast<double>(plan.recipe.tokens_per_step());
  if (unit == BudgetUnit::flops) return plan.work / static_cast<double>(plan.recipe.steps);
  return 1;
}

}  // namespace

bool settle_budget(Study& study, const Planner& planner, Runner& runner) {
  if (!study.budget || study.budget->steps.size() == study.variants.size() + 1) return true;
  Budget& budget = *study.budget;
  budget.steps.clear();
  std::vector<VariantResult> variants;
  std::vector<double> costs;
  for (const Variant& variant : variants_of(study)) {
    variants.push_back(planner.build(variant));
    costs.push_back(cost_of_update(budget.unit, planner.plan(variants.back(), study.seeds[0])));
  }
  if (budget.unit == BudgetUnit::seconds) costs = measured_seconds(study, variants, planner, runner);
  if (costs.empty()) return false;
  std::vector<int64_t> steps;
  for (size_t i = 0; i < costs.size(); ++i) {
    const double updates = std::floor(budget.amount / costs[i] * (1 + 1e-12));
    LAMINA_CHECK(updates >= 1 && updates <= kMostSteps, "budget: ", budget.amount, " ", lamina::name_of(budget.unit),
                 " are ", updates, " updates of ", variants[i].variant.name, ", each of ", costs[i],
                 "; expected at least one update and at most ", arch::with_commas(static_cast<int64_t>(kMostSteps)));
    steps.push_back(static_cast<int64_t>(updates));
  }
  set_length(study.recipe, steps[0]);
  budget.steps = std::move(steps);
  return true;
}

}  // namespace lamina::lab
