#include <algorithm>
#include <cmath>

#include "lamina/lab/report/columns.h"
#include "lamina/lab/report/results_file.h"
#include "lamina/lab/run/findings.h"
#include "lamina/lab/run/statistics.h"

namespace lamina::lab::report {
namespace {

constexpr double kDefaultMargin = 0.005;  // Study::margin of lab/study/study.h

Number value_of(const Run& run, const std::string& key) {
  const auto found = run.values.find(key);
  return found == run.values.end() ? Number() : found->second;
}

std::vector<double> paired(const Variant& variant, const Variant& other, const std::string& key) {
  std::vector<double> differences;
  for (const Run& run : variant.runs) {
    for (const Run& partner : other.runs) {
      const Number a = value_of(run, key);
      const Number b = value_of(partner, key);
      if (run.seed == partner.seed && a && b) differences.push_back(*a - *b);
    }
  }
  return differences;
}

bool finished(const Variant& variant, size_t seeds) {
  return variant.runs.size() >= seeds &&
         std::none_of(variant.runs.begin(), variant.runs.end(), [](const Run& run) { return run.diverged; });
}

}  // namespace

void judge_again(Study& study) {
  for (Finding& finding : study.findings) {  // one trained model has no interval
    if (study.mode == "stretch" && finding.kind == "claim") finding.verdict = "cannot tell";
  }
  const std::string key = study.quality();
  const MetricInfo& metric = *find_metric(key);
  std::vector<MetricSummary> summaries;
  std::vector<Variant*> compared;
  std::vector<double> deviations;
  for (Variant& variant : study.variants) {
    const Variant* reference = study.reference_of(variant);
    if (reference == nullptr) continue;
    const std::vector<double> differences = paired(variant, *reference, key);
    const Number mean = measure_of(*reference, key).mean;
    if (differences.empty() || !mean) continue;
    const PairedTest test = paired_test(differences);
    MetricSummary summary;
    summary.difference = test.difference;
    summary.ci95_half_width = test.ci95_half_width;
    summary.p_alone = test.p;
    summary.margin = kDefaultMargin * std::abs(*mean);
    summary.p_equivalence = equivalence_p(differences, *summary.margin);
    summaries.push_back(summary);
    compared.push_back(&variant);
    deviations.push_back(deviation_of(differences).value_or(0));
  }
  std::vector<MetricSummary*> all;
  for (MetricSummary& summary : summaries) all.push_back(&summary);
  correct_p(all);
  const size_t seeds = study.most_seeds();
  for (size_t i = 0; i < compared.size(); ++i) {
    const MetricSummary& summary = summaries[i];
    Measure measure = measure_of(*compared[i], key);
    const bool told = finished(*compared[i], seeds) && finished(*study.reference_of(*compared[i]), seeds);
    measure.difference = summary.difference;
    measure.ci95_half_width = summary.ci95_half_width;
    measure.p_alone = summary.p_alone;
    measure.margin = summary.margin;
    measure.mark = told ? mark_of(summary, metric) : "cannot tell";
    const bool equivalent = measure.mark == "no difference" && *summary.difference != 0;
    measure.p = equivalent ? summary.p_equivalence : summary.p;
    measure.seeds_needed = {};
    if (measure.mark == "cannot tell" && deviations[i] > 0) {
      if (const auto needed = pairs_needed(*summary.margin / deviations[i], kPower, corrected_level(all))) {
        measure.seeds_needed = static_cast<double>(*needed);
      }
    }
    compared[i]->summary[key] = measure;
  }
  if (compared.empty()) return;
  study.margin = kDefaultMargin;
  study.judged_again = true;
}

}  // namespace lamina::lab::report
