#include "lamina/lab/run/search.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "lamina/lab/run/format.h"
#include "lamina/lab/run/statistics.h"

namespace lamina::lab {
namespace {

/// A candidate, with its loss in the current round.
struct Candidate {
  VariantResult built;
  double loss = 0;
};

Variant combined(const std::vector<Axis>& space, const std::vector<size_t>& choice) {
  Variant variant;
  for (size_t axis = 0; axis < space.size(); ++axis) {
    if (choice[axis] == 0) continue;
    const Variant& chosen = space[axis].choices[choice[axis] - 1];
    variant.name += (variant.name.empty() ? "" : "+") + chosen.name;
    variant.label += (variant.label.empty() ? "" : ", ") + chosen.label;
    variant.set.insert(variant.set.end(), chosen.set.begin(), chosen.set.end());
    variant.recipe.insert(variant.recipe.end(), chosen.recipe.begin(), chosen.recipe.end());
  }
  return variant;
}

/// Decodes combination number `index`, in mixed radix. Each axis has one digit; one of its values means "as in the
/// base".
std::vector<size_t> digits(const std::vector<Axis>& space, uint64_t index) {
  std::vector<size_t> choice;
  for (const Axis& axis : space) {
    choice.push_back(static_cast<size_t>(index % (axis.choices.size() + 1)));
    index /= axis.choices.size() + 1;
  }
  return choice;
}

int64_t steps_of_rung(const Study& study, int64_t rung) {
  const double share = std::pow(study.search.keep, static_cast<double>(study.search.rungs - 1 - rung));
  return std::max<int64_t>(1, std::llround(static_cast<double>(study.recipe.steps) * share));
}

/// Recipe changes for a shorter run: it evaluates once, at the end, and has a proportionally shorter warm-up.
std::vector<std::string> rung_changes(const Study& study, int64_t rung) {
  const int64_t steps = steps_of_rung(study, rung);
  const int64_t warmup = std::visit([](const auto& schedule) { return schedule.warmup; }, study.recipe.schedule);
  return {str("steps=", steps), "eval_every=0", "save_every=0",
          str("schedule.warmup=", warmup * steps / std::max<int64_t>(study.recipe.steps, 1))};
}

size_t kept_of(size_t candidates, double share) {
  return std::max<size_t>(1, static_cast<size_t>(std::ceil(static_cast<double>(candidates) * share - 1e-9)));
}

/// Trains all candidates for one round and sets their losses. Returns false if stopped.
bool run_rung(const Planner& planner, Runner& runner, const Study& study, int64_t rung,
              std::vector<Candidate>& candidates) {
  std::vector<RunPlan> plans;
  for (const Candidate& candidate : candidates) {
    plans.push_back(planner.plan(candidate.built, study.search.selection_seed, rung_changes(study, rung)));
    plans.back().title = str(candidate.built.variant.name, ", round ", rung + 1);
  }
  const auto outcomes = run_all(runner, plans);
  if (!outcomes) return false;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const RunOutcome& outcome = (*outcomes)[i];
    const bool fine = outcome.result && !outcome.result->diverged && outcome.result->final_loss;
    candidates[i].loss = fine ? *outcome.result->final_loss : INFINITY;
    if (!outcome.cannot.empty()) candidates[i].built.cannot = outcome.cannot;
  }
  return true;
}

/// Sorts candidates by loss and moves those that are not kept to `dropped`.
void drop(const Study& study, int64_t rung, std::vector<Candidate>& candidates, std::vector<VariantResult>& dropped) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.loss < b.loss; });
  const size_t kept = kept_of(candidates.size(), study.search.keep);
  const double worst_kept = candidates[kept - 1].loss;
  for (size_t i = kept; i < candidates.size(); ++i) {
    VariantResult& built = candidates[i].built;
    if (built.cannot.empty()) {
      built.cannot =
          str("dropped after round ", rung + 1, " of ", study.search.rungs, " (", steps_of_rung(study, rung),
              " steps): ", std::isfinite(candidates[i].loss) ? "loss " + fixed(candidates[i].loss, 4) : "diverged",
              ", the highest kept was ", fixed(worst_kept, 4));
    }
    dropped.push_back(std::move(built));
  }
  candidates.resize(kept);
}

/// Announces all rounds to the runner, for its estimate of the remaining time.
void announce(const Planner& planner, Runner& runner, const Study& study, const std::vector<Candidate>& candidates) {
  size_t left = candidates.size();
  for (int64_t rung = 0; rung + 1 < study.search.rungs; ++rung) {
    for (size_t i = 0; i < left; ++i) {
      runner.expect(1, planner.plan(candidates[i].built, study.search.selection_seed, rung_changes(study, rung)).work);
    }
    left = kept_of(left, study.search.keep);
  }
}

}  // namespace

std::optional<std::vector<RunOutcome>> run_all(Runner& runner, const std::vector<RunPlan>& plans) {
  const Distinct unique = distinct(plans);
  std::vector<RunOutcome> found(unique.plans.size());
  const bool whole = runner.run(unique.plans, [&](size_t index, const RunOutcome& outcome) { found[index] = outcome; });
  if (!whole) return {};
  std::vector<RunOutcome> outcomes;
  for (const size_t index : unique.index) outcomes.push_back(found[index]);
  return outcomes;
}

bool run_seeds(const Planner& planner, Runner& runner, Results& results, const std::vector<size_t>& variants,
               const std::function<void()>& saved) {
  struct Slot {
    size_t variant;
    size_t seed;
  };
  const std::vector<int64_t>& seeds = results.study.seeds;
  std::vector<RunPlan> plans;
  std::vector<Slot> places;
  for (size_t seed = 0; seed < seeds.size(); ++seed) {
    for (const size_t variant : variants) {
      if (!results.variants[variant].cannot.empty()) continue;
      plans.push_back(planner.plan(results.variants[variant], seeds[seed]));
      places.push_back({variant, seed});
    }
  }
  const Distinct unique = distinct(plans);
  for (const RunPlan& plan : unique.plans) runner.expect(1, plan.work);
  std::vector<std::string> reasons(results.variants.size());
  const bool whole = runner.run(unique.plans, [&](size_t index, const RunOutcome& outcome) {
    for (size_t i = 0; i < places.size(); ++i) {
      if (unique.index[i] != index) continue;
      VariantResult& variant = results.variants[places[i].variant];
      if (outcome.result) {
        variant.runs.push_back(*outcome.result);
      } else {
        reasons[places[i].variant] = outcome.cannot;
      }
    }
    saved();
  });
  for (size_t i = 0; i < results.variants.size(); ++i) {
    VariantResult& variant = results.variants[i];
    if (variant.runs.empty() && !reasons[i].empty()) variant.cannot = reasons[i];
    std::sort(variant.runs.begin(), variant.runs.end(), [&](const RunResult& a, const RunResult& b) {
      return std::find(seeds.begin(), seeds.end(), a.seed) < std::find(seeds.begin(), seeds.end(), b.seed);
    });
  }
  return whole;
}

std::vector<Variant> search_candidates(const Search& search) {
  constexpr uint64_t kMost = 1U << 20U;
  uint64_t all = 1;
  for (const Axis& axis : search.space) {
    all *= axis.choices.size() + 1;
    LAMINA_CHECK(all <= kMost, "search.space has more than ", kMost, " combinations; remove axes or choices");
  }
  std::set<uint64_t> chosen;
  if (search.strategy == Strategy::product || all - 1 <= static_cast<uint64_t>(search.candidates)) {
    for (uint64_t index = 1; index < all; ++index) chosen.insert(index);
  } else {
    std::mt19937_64 random(static_cast<uint64_t>(search.seed));
    while (chosen.size() < static_cast<size_t>(search.candidates)) chosen.insert(1 + random() % (all - 1));
  }
  std::vector<Variant> candidates;
  candidates.reserve(chosen.size());
  for (const uint64_t index : chosen) candidates.push_back(combined(search.space, digits(search.space, index)));
  return candidates;
}

bool run_search(const Planner& planner, Runner& runner, Results& results, const std::function<void()>& saved) {
  const Study& study = results.study;
  results.variants.push_back(planner.build(variants_of(study)[0]));
  std::vector<Candidate> candidates;
  std::vector<VariantResult> dropped;
  for (const Variant& variant : search_candidates(study.search)) {
    try {
      candidates.push_back({planner.build(variant)});
    } catch (const Error& error) {  // choices that do not fit together
      VariantResult failed;
      failed.variant = variant;
      failed.cannot = error.what();
      dropped.push_back(std::move(failed));
    }
  }
  LAMINA_CHECK(!candidates.empty(),
               "no combination of search.space can be built; the first fails with: ", dropped[0].cannot);
  announce(planner, runner, study, candidates);
  bool whole = true;
  for (int64_t rung = 0; whole && rung + 1 < study.search.rungs; ++rung) {
    whole = run_rung(planner, runner, study, rung, candidates);
    if (whole) drop(study, rung, candidates, dropped);
  }
  std::vector<size_t> last = {0};
  for (Candidate& candidate : candidates) {
    last.push_back(results.variants.size());
    results.variants.push_back(std::move(candidate.built));
  }
  whole = whole && run_seeds(planner, runner, results, last, saved);
  results.variants.insert(results.variants.end(), dropped.begin(), dropped.end());
  return whole;
}

std::optional<double> highest_stable(const std::vector<std::pair<double, RunOutcome>>& rates) {
  constexpr double kAboveBest = 1.1;
  const auto last_tenth = [](const std::vector<double>& losses) {
    const size_t count = std::max<size_t>(1, losses.size() / 10);
    return mean_of(std::span(losses).last(count));
  };
  const auto first_tenth = [](const std::vector<double>& losses) {
    return mean_of(std::span(losses).first(std::max<size_t>(1, losses.size() / 10)));
  };
  double best = INFINITY;
  std::optional<double> highest;
  for (const auto& [rate, outcome] : rates) {
    if (!outcome.result || outcome.result->diverged || outcome.result->curve_loss.empty()) break;
    const std::vector<double>& losses = outcome.result->curve_loss;
    if (last_tenth(losses) >= first_tenth(losses) || last_tenth(losses) > kAboveBest * best) break;
    best = std::min(best, last_tenth(losses));
    highest = rate;
  }
  return highest;
}

}  // namespace lamina::lab
