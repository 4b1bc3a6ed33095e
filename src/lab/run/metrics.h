#pragma once

#include <optional>
#include <vector>

#include "lamina/lab/run/run_result.h"

namespace lamina::lab {

/// Values that all metrics of a study share.
struct MetricContext {
  std::optional<double> target;   ///< loss of "to target"
  std::optional<double> seconds;  ///< equal budget of training time: the shortest run's
  std::optional<double> tokens;   ///< equal budget of tokens: the shortest run's; empty if all runs have the same
};

/// A metric of a run, for summaries, claims and tables.
struct MetricInfo {
  const char* name;   ///< key in the results
  const char* words;  ///< name in sentences
  bool higher_better;
  std::optional<double> (*of)(const RunResult& run, const MetricContext& context);
};
const std::vector<MetricInfo>& metrics();
/// Returns null for an unknown name.
const MetricInfo* find_metric(const std::string& name);

}  // namespace lamina::lab
