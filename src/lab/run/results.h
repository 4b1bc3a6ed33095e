#pragma once

#include <map>
#include <string>
#include <vector>

#include "lamina/lab/run/machine.h"
#include "lamina/lab/run/metrics.h"
#include "lamina/lab/run/scaling_fit.h"
#include "lamina/lab/stretch/result.h"
#include "lamina/lab/study/matching.h"

namespace lamina::lab {

/// The summary of a metric over a variant's seeds, compared with its reference (reference_of).
struct MetricSummary {
  size_t runs = 0;  ///< number of runs that have this metric
  std::optional<double> mean;
  std::optional<double> spread;           ///< sample standard deviation
  std::optional<double> difference;       ///< mean paired difference to the reference
  std::optional<double> ci95_half_width;  ///< half-width of the 95 % confidence interval of the difference
  std::optional<double> p;                ///< corrected for multiple comparisons (Holm)
  std::optional<double> p_alone;          ///< p value without this correction
  std::optional<double> margin;           ///< largest absolute difference that counts as equivalent
  std::optional<double> p_equivalence;    ///< p of the equivalence test within the margin, corrected (Holm)
  std::optional<size_t> seeds_needed;     ///< if undecided: number of seeds that would find the margin (power 0.8)
  std::string mark;                       ///< better, worse, no difference, cannot tell or base
};

/// A combination of tuning values, and its result.
struct TuningTrial {
  std::vector<std::string> changes;  ///< changes of the recipe, each path=value
  std::optional<double> loss;        ///< mean best validation loss over the tuning seeds; empty if a run diverged
};

/// A variant with its runs and their summaries.
struct VariantResult {
  Variant variant;              ///< includes the complete list of its changes
  arch::ArchSpec architecture;  ///< resolved and matched; empty if the variant cannot be built
  int64_t parameters = 0;
  double flops_per_token = 0;  ///< forward pass
  double kv_bytes_per_token = 0;
  double training_flops = 0;  ///< FLOPs of one run
  std::optional<Adjustment> adjusted;
  bool trained = true;  ///< false: measures existing weights (mode stretch), so it has no runs
  std::string cannot;   ///< reason why it has no runs
  std::optional<double> highest_stable_learning_rate;
  std::vector<TuningTrial> trials;     ///< empty if the study tunes nothing
  std::optional<size_t> chosen_trial;  ///< index of the trial whose changes are used
  std::vector<RunResult> runs;         ///< in the order of the study's seeds
  std::map<std::string, MetricSummary> summary;
};

/// A sentence about the results.
struct Finding {
  std::string kind;  ///< comparison, claim, scaling or note
  std::string text;
  /// For a claim: "holds", "does not" or "cannot tell". The first two have the prefix "at our size: " if the setting
  /// differs from the claim's. Empty for other kinds.
  std::string verdict;
  std::string claim;
};

/// The scaling law of a group of variants.
struct ScalingResult {
  std::string group;
  std::vector<std::string> variants;
  std::vector<ScalingPoint> points;
  std::optional<ScalingFit> fit;  ///< empty if fewer than three sizes have finished runs
};

/// All results of a study.
struct Results {
  Study study;
  std::string command;
  Machine machine;
  bool complete = false;         ///< whether all runs are finished
  std::optional<double> target;  ///< set by the study, or derived from the base
  std::vector<ScalingResult> scaling;
  std::string data_hash;
  double seconds = 0;                   ///< wall time of this process
  double seconds_of_runs = 0;           ///< sum over the runs of this process
  std::vector<VariantResult> variants;  ///< the base is first
  std::vector<Finding> findings;
  std::optional<StretchResult> stretch;  ///< mode stretch, when everything is measured
};

/// The target and the equal budgets for the study's metrics.
MetricContext context_of(const Results& results);

/// The variant with which a variant is compared: the base or, in a ladder, the nearest earlier rung that has runs. Null
/// for the base itself.
const VariantResult* reference_of(const Results& results, size_t variant);
/// Why a variant gets no verdict: some runs diverged or are missing. Empty if all its runs are finished.
std::string unfinished_runs(const Results& results, const VariantResult& variant);
/// "base" or "previous rung".
std::string reference_words(const Study& study);

/// Computes target, summaries and findings from the runs.
void summarise(Results& results);

/// Writes results.json atomically. Reports need no other file.
void write_results(const Results& results, const std::string& folder);
/// The contents of results.json.
std::string results_json(const Results& results);

}  // namespace lamina::lab
