#pragma once

#include "lamina/lab/results.h"

namespace lamina::lab {

/// variant − other by seeds that both have.
std::vector<double> paired_differences(const VariantResult& variant, const VariantResult& other,
                                       const MetricInfo& metric, std::optional<double> target);

/// better or worse below p = 0.05; no difference above 0.1 where there are three pairs or more, or where every pair is
/// equal to the bit; cannot tell otherwise.
std::string mark_of(const MetricSummary& summary, size_t pairs, const MetricInfo& metric);

/// Before a verdict on a claim that was made at another size than the study's.
inline constexpr const char* kAtOurSize = "at our size: ";
/// Whether a size of a claim's setting and ours are the same one: within a factor of two.
bool same_setting(double claimed, double ours);

/// What the summaries say, in sentences, and the verdicts on the study's claims.
std::vector<Finding> findings_of(const Results& results);

}  // namespace lamina::lab
