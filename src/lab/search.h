#pragma once

#include <functional>
#include <utility>

#include "lamina/lab/plan.h"
#include "lamina/lab/runner.h"

namespace lamina::lab {

/// Runs the variants of these indices with every seed of the study, all of one seed before the next one's, and puts the
/// results into them; `saved` is called behind each. A variant none of whose runs could be made says why in `cannot`.
/// False where it was stopped.
bool run_seeds(const Planner& planner, Runner& runner, Results& results, const std::vector<size_t>& variants,
               const std::function<void()>& saved);

/// Combinations of the space's choices, at most so many, the base itself not among them; the same seed draws the same.
std::vector<Variant> search_candidates(const Search& search);

/// Successive halving: in each round every candidate is trained from scratch with one seed, for more steps than the
/// round before, and the best share goes on; the last round has the recipe's steps, all seeds, and the base beside.
/// What was dropped, when and for what stands in the variants' `cannot`. False where it was stopped.
bool run_search(const Planner& planner, Runner& runner, Results& results, const std::function<void()>& saved);

/// Of a sweep, rates ascending: the highest up to which all are stable. A run is stable where it ended with finite
/// numbers, its last tenth of updates has a lower mean loss than its first, and that mean is no more than a tenth above
/// the lowest at the rates before.
std::optional<double> highest_stable(const std::vector<std::pair<double, RunOutcome>>& rates);

}  // namespace lamina::lab
