#pragma once

#include <optional>
#include <vector>

#include "lamina/lab/run/run_result.h"

namespace lamina::lab {

/// A metric of a run, for summaries, claims and tables.
struct MetricInfo {
  const char* name;   ///< key in the results
  const char* words;  ///< name in sentences
  bool higher_better;
  std::optional<double> (*of)(const RunResult& run, std::optional<double> target);
};
const std::vector<MetricInfo>& metrics();
/// Returns null for an unknown name.
const MetricInfo* find_metric(const std::string& name);

}  // namespace lamina::lab
