#pragma once

#include "lamina/lab/run/results.h"

namespace lamina::lab {

/// The differences variant − other, one for each seed that both have.
std::vector<double> paired_differences(const VariantResult& variant, const VariantResult& other,
                                       const MetricInfo& metric, const MetricContext& context);

/// "better" or "worse" if p < 0.05. "no difference" if the equivalence test has p < 0.05, or if all pairs are
/// bit-identical. Otherwise "cannot tell". All p values are corrected for multiple comparisons.
std::string mark_of(const MetricSummary& summary, const MetricInfo& metric);

/// Holm's correction over these comparisons: sets `p` from `p_alone`, and corrects `p_equivalence`.
void correct_p(const std::vector<MetricSummary*>& compared);
/// The strictest level of Holm's method over these comparisons: 0.05 / their number. Estimated numbers of seeds use it.
double corrected_level(const std::vector<MetricSummary*>& compared);
inline constexpr double kPower = 0.8;  ///< power assumed for estimated numbers of seeds

/// Fits the study's scaling laws to the finished runs.
std::vector<ScalingResult> fit_groups(const Results& results);
/// Adds a sentence for each scaling law.
void add_scaling_findings(const Results& results, std::vector<Finding>& findings);

/// For mode stretch: a sentence about each row at the longest length, and verdicts on published claims.
std::vector<Finding> stretch_findings(const Results& results);
/// Sentences about the summaries, and verdicts on the study's claims.
std::vector<Finding> findings_of(const Results& results);

}  // namespace lamina::lab
