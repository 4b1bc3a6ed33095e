#pragma once

#include <optional>
#include <vector>

#include "lamina/lab/run/run_result.h"

namespace lamina::lab {

/// Values that the metrics of a study need.
struct MetricContext {
  std::optional<double> target;   ///< the loss to reach, for "to target" metrics
  std::optional<double> seconds;  ///< equal budget of training time: that of the shortest run
  std::optional<double> tokens;   ///< equal budget of tokens: that of the shortest run; empty if all runs have the same
};

/// A metric of a run, as used in summaries, claims and tables.
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
