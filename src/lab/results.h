#pragma once

#include <map>
#include <string>
#include <vector>

#include "lamina/lab/machine.h"
#include "lamina/lab/matching.h"
#include "lamina/lab/metrics.h"
#include "lamina/lab/report.h"

namespace lamina::lab {

/// A metric of a variant over its seeds, compared with its reference (reference_of).
struct MetricSummary {
  size_t runs = 0;  ///< that have the number
  std::optional<double> mean;
  std::optional<double> spread;      ///< sample standard deviation
  std::optional<double> difference;  ///< mean of the pairs' differences to the reference
  std::optional<double> reach;       ///< half of the 95 % interval of the difference
  std::optional<double> p;           ///< corrected for the number of variants
  std::optional<double> p_alone;     ///< as if this were the only comparison
  std::string mark;                  ///< better, worse, no difference, cannot tell, base
};

struct VariantResult {
  Variant variant;              ///< with its whole list of changes
  arch::ArchSpec architecture;  ///< resolved and matched; empty where it cannot be
  int64_t parameters = 0;
  double flops_per_token = 0;  ///< of a forward pass
  double kv_bytes_per_token = 0;
  std::optional<Adjustment> adjusted;
  std::string cannot;  ///< why it has no runs
  std::optional<double> highest_stable_learning_rate;
  std::vector<RunResult> runs;  ///< by the study's order of seeds
  std::map<std::string, MetricSummary> summary;
};

struct Finding {
  std::string text;
  /// Of a claim: holds, does not, cannot tell; "at our size: " before the first two unless the study has the claim's
  /// setting. Else empty.
  std::string verdict;
  std::string claim;
};

/// Everything a study gave.
struct Results {
  Study study;
  std::string command;
  Machine machine;
  bool complete = false;         ///< nothing is left to run
  std::optional<double> target;  ///< the study's, or the one found
  std::string data_hash;
  double seconds = 0;                   ///< that this process spent on the study
  double seconds_of_runs = 0;           ///< that its runs took of it, added up
  std::vector<VariantResult> variants;  ///< the base first
  std::vector<Finding> findings;
};

/// What a variant is compared with, in tables and sentences alike: the base; in a ladder the rung before it that has
/// runs. Null for the base itself.
const VariantResult* reference_of(const Results& results, size_t variant);
/// "base" or "previous rung".
std::string reference_words(const Study& study);

/// Fills target, summaries and findings from the runs.
void summarise(Results& results);

/// results.json, whole or not at all. The one place through which results leave the lab: reports begin here.
void write_results(const Results& results, const std::string& folder);
/// The same as text.
std::string results_json(const Results& results);

/// For the terminal.
std::string results_table(const Results& results, Columns columns = Columns::standard);

}  // namespace lamina::lab
