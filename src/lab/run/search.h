#pragma once

#include <functional>
#include <utility>

#include "lamina/lab/run/plan.h"
#include "lamina/lab/run/runner.h"

namespace lamina::lab {

/// Executes these plans, equal ones only once. Returns their outcomes, or nothing if stopped.
std::optional<std::vector<RunOutcome>> run_all(Runner& runner, const std::vector<RunPlan>& plans);

/// Runs these variants with every seed of the study, one seed after the other, and stores the results in the variants.
/// Calls `saved` after each run. If none of a variant's runs can start, its `cannot` gives the reason. Returns false if
/// stopped.
bool run_seeds(const Planner& planner, Runner& runner, Results& results, const std::vector<size_t>& variants,
               const std::function<void()>& saved);

/// Combinations of the choices, without the base: all of them, or a random sample that depends only on the seed.
std::vector<Variant> search_candidates(const Search& search);

/// Successive halving. Each round trains every candidate from scratch with one seed, for more steps than the previous
/// round, and keeps the best share. The last round has the recipe's steps and all seeds, and includes the base. The
/// `cannot` of a dropped variant tells when and why it was dropped. Returns false if stopped.
bool run_search(const Planner& planner, Runner& runner, Results& results, const std::function<void()>& saved);

/// The highest learning rate of an ascending sweep up to which all rates are stable. A run is stable if it meets three
/// conditions. It stays finite; the mean loss of its last tenth of updates is below that of its first tenth; and that
/// mean is at most 10 % above the lowest one at smaller rates.
std::optional<double> highest_stable(const std::vector<std::pair<double, RunOutcome>>& rates);

}  // namespace lamina::lab
