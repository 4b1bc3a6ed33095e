#pragma once

#include <optional>
#include <vector>

#include "lamina/lab/run_result.h"

namespace lamina::lab {

/// A number of a run that summaries, claims and tables speak of.
struct MetricInfo {
  const char* name;   ///< the key in results
  const char* words;  ///< in sentences
  bool higher_better;
  std::optional<double> (*of)(const RunResult& run, std::optional<double> target);
};
const std::vector<MetricInfo>& metrics();
/// Null for an unknown name.
const MetricInfo* find_metric(const std::string& name);

}  // namespace lamina::lab
