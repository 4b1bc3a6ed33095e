#include <algorithm>

#include "lamina/lab/run/findings.h"
#include "lamina/lab/run/statistics.h"

namespace lamina::lab {
namespace {

constexpr double kSignificant = 0.05;
constexpr double kFarFrom = 0.1;
constexpr size_t kEnoughPairs = 3;

std::vector<double> values_of(const VariantResult& variant, const MetricInfo& metric, std::optional<double> target) {
  std::vector<double> values;
  for (const RunResult& run : variant.runs) {
    if (const std::optional<double> value = metric.of(run, target)) values.push_back(*value);
  }
  return values;
}

MetricSummary alone(const VariantResult& variant, const MetricInfo& metric, std::optional<double> target) {
  MetricSummary summary;
  const std::vector<double> values = values_of(variant, metric, target);
  summary.runs = values.size();
  if (values.empty()) return summary;
  summary.mean = mean_of(values);
  summary.spread = deviation_of(values);
  return summary;
}

/// Compares every variant with its reference in one metric. Holm's correction covers the variants that have a p.
void compare(Results& results, const MetricInfo& metric) {
  std::vector<MetricSummary*> compared;
  std::vector<size_t> pairs;
  std::vector<double> p;
  for (size_t i = 0; i < results.variants.size(); ++i) {
    VariantResult& variant = results.variants[i];
    MetricSummary summary = alone(variant, metric, results.target);
    if (summary.runs == 0) continue;
    const VariantResult* reference = reference_of(results, i);
    if (reference == nullptr) {
      summary.mark = "base";
    } else {
      const PairedTest test = paired_test(paired_differences(variant, *reference, metric, results.target));
      if (test.pairs > 0) summary.difference = test.difference;
      summary.ci95_half_width = test.ci95_half_width;
      summary.p_alone = test.p;
      pairs.push_back(test.pairs);
    }
    MetricSummary& kept = variant.summary[metric.name] = summary;
    if (kept.mark != "base") compared.push_back(&kept);
    if (kept.p_alone) p.push_back(*kept.p_alone);
  }
  const std::vector<double> corrected = holm(p);
  size_t next = 0;
  for (size_t i = 0; i < compared.size(); ++i) {
    if (compared[i]->p_alone) compared[i]->p = corrected[next++];
    compared[i]->mark = mark_of(*compared[i], pairs[i], metric);
  }
}

/// Loss that every run of the base reaches: the maximum of their best losses.
std::optional<double> target_of(const Results& results) {
  if (results.study.target) return results.study.target;
  std::optional<double> worst;
  for (const RunResult& run : results.variants[0].runs) {
    if (run.best_loss) worst = std::max(worst.value_or(*run.best_loss), *run.best_loss);
  }
  return worst;
}

}  // namespace

const VariantResult* reference_of(const Results& results, size_t variant) {
  if (variant == 0) return nullptr;
  if (results.study.mode != Mode::ladder) return results.variants.data();
  size_t before = variant - 1;
  while (before > 0 && results.variants[before].runs.empty()) --before;
  return &results.variants[before];
}

std::string reference_words(const Study& study) { return study.mode == Mode::ladder ? "previous rung" : "base"; }

std::string mark_of(const MetricSummary& summary, size_t pairs, const MetricInfo& metric) {
  if (!summary.p || !summary.difference) return "cannot tell";
  const double difference = *summary.difference;
  if (*summary.p < kSignificant && difference != 0)
    return (difference > 0) == metric.higher_better ? "better" : "worse";
  const bool same_bits = difference == 0 && summary.ci95_half_width == 0.0;
  if (*summary.p > kFarFrom && (pairs >= kEnoughPairs || same_bits)) return "no difference";
  return "cannot tell";
}

std::vector<double> paired_differences(const VariantResult& variant, const VariantResult& other,
                                       const MetricInfo& metric, std::optional<double> target) {
  std::vector<double> differences;
  for (const RunResult& run : variant.runs) {
    for (const RunResult& partner : other.runs) {
      if (partner.seed != run.seed) continue;
      const std::optional<double> a = metric.of(run, target);
      const std::optional<double> b = metric.of(partner, target);
      if (a && b) differences.push_back(*a - *b);
    }
  }
  return differences;
}

void summarise(Results& results) {
  if (results.variants.empty()) return;
  results.target = target_of(results);
  for (VariantResult& variant : results.variants) variant.summary.clear();
  for (const MetricInfo& metric : metrics()) compare(results, metric);
  results.findings = findings_of(results);
}

}  // namespace lamina::lab
