#include <algorithm>
#include <cmath>

#include "lamina/lab/run/findings.h"
#include "lamina/lab/run/statistics.h"

namespace lamina::lab {
namespace {

std::vector<double> values_of(const VariantResult& variant, const MetricInfo& metric, const MetricContext& context) {
  std::vector<double> values;
  for (const RunResult& run : variant.runs) {
    if (const std::optional<double> value = metric.of(run, context)) values.push_back(*value);
  }
  return values;
}

MetricSummary alone(const VariantResult& variant, const MetricInfo& metric, const MetricContext& context) {
  MetricSummary summary;
  const std::vector<double> values = values_of(variant, metric, context);
  summary.runs = values.size();
  if (values.empty()) return summary;
  summary.mean = mean_of(values);
  summary.spread = deviation_of(values);
  return summary;
}

/// Sets the comparison of a variant with its reference, before correction.
void compare_pair(MetricSummary& summary, std::span<const double> differences, double reference_mean, double margin) {
  const PairedTest test = paired_test(differences);
  if (test.pairs > 0) summary.difference = test.difference;
  summary.ci95_half_width = test.ci95_half_width;
  summary.p_alone = test.p;
  summary.margin = margin * std::abs(reference_mean);
  summary.p_equivalence = equivalence_p(differences, *summary.margin);
}

/// Holm's correction of one field, over the comparisons that have it.
void correct(const std::vector<MetricSummary*>& compared, std::optional<double> MetricSummary::*from,
             std::optional<double> MetricSummary::*to) {
  std::vector<double> p;
  for (const MetricSummary* summary : compared) {
    if (summary->*from) p.push_back(*(summary->*from));
  }
  const std::vector<double> corrected = holm(p);
  size_t next = 0;
  for (MetricSummary* summary : compared) {
    if (summary->*from) summary->*to = corrected[next++];
  }
}

/// One comparison of a variant with its reference in one metric.
struct Comparison {
  MetricSummary* summary = nullptr;
  bool finished = false;  ///< whether all runs of both variants are finished
  double deviation = 0;   ///< standard deviation of the paired differences
};

/// Compares every variant with its reference in one metric. If finished runs lack the metric, as those that never reach
/// the target, the other pairs are a selection: they are not compared.
void compare(Results& results, const MetricInfo& metric, const MetricContext& context) {
  std::vector<Comparison> comparisons;
  for (size_t i = 0; i < results.variants.size(); ++i) {
    VariantResult& variant = results.variants[i];
    MetricSummary summary = alone(variant, metric, context);
    if (summary.runs == 0) continue;
    const VariantResult* reference = reference_of(results, i);
    Comparison comparison;
    if (reference == nullptr) {
      summary.mark = "base";
    } else if (const auto other = reference->summary.find(metric.name); other != reference->summary.end()) {
      const std::vector<double> differences = paired_differences(variant, *reference, metric, context);
      comparison.finished = unfinished_runs(results, variant).empty() && unfinished_runs(results, *reference).empty();
      comparison.deviation = deviation_of(differences).value_or(0);
      const bool selected = comparison.finished && differences.size() < results.study.seeds.size();
      if (!selected) compare_pair(summary, differences, *other->second.mean, results.study.margin);
    }
    comparison.summary = &(variant.summary[metric.name] = summary);
    if (reference != nullptr) comparisons.push_back(comparison);
  }
  std::vector<MetricSummary*> compared;
  for (const Comparison& comparison : comparisons) compared.push_back(comparison.summary);
  correct_p(compared);
  for (const Comparison& comparison : comparisons) {
    MetricSummary& summary = *comparison.summary;
    summary.mark = comparison.finished ? mark_of(summary, metric) : "cannot tell";
    if (summary.mark != "cannot tell" || !summary.margin || comparison.deviation == 0) continue;
    summary.seeds_needed = pairs_needed(*summary.margin / comparison.deviation, kPower, corrected_level(compared));
  }
}

/// The loss that every run of the base reaches: the maximum of their best losses.
std::optional<double> target_of(const Results& results) {
  if (results.study.target) return results.study.target;
  std::optional<double> worst;
  for (const RunResult& run : results.variants[0].runs) {
    if (run.best_loss) worst = std::max(worst.value_or(*run.best_loss), *run.best_loss);
  }
  return worst;
}

}  // namespace

MetricContext context_of(const Results& results) {
  MetricContext context{results.target, {}, {}};
  double most_tokens = 0;
  for (const VariantResult& variant : results.variants) {
    for (const RunResult& run : variant.runs) {
      if (run.diverged || run.evaluation_step.empty()) continue;
      const double seconds = run.evaluation_seconds.back();
      if (seconds > 0) context.seconds = std::min(context.seconds.value_or(seconds), seconds);
      const std::vector<double> tokens = run.tokens_at({run.evaluation_step.back()});
      if (tokens.empty()) continue;
      context.tokens = std::min(context.tokens.value_or(tokens[0]), tokens[0]);
      most_tokens = std::max(most_tokens, tokens[0]);
    }
  }
  if (context.tokens == most_tokens) context.tokens = {};
  return context;
}

const VariantResult* reference_of(const Results& results, size_t variant) {
  if (variant == 0) return nullptr;
  if (results.study.mode != Mode::ladder) return results.variants.data();
  size_t before = variant - 1;
  while (before > 0 && results.variants[before].runs.empty()) --before;
  return &results.variants[before];
}

std::string reference_words(const Study& study) { return study.mode == Mode::ladder ? "previous rung" : "base"; }

std::string unfinished_runs(const Results& results, const VariantResult& variant) {
  const size_t planned = results.study.seeds.size();
  const auto diverged = static_cast<size_t>(
      std::count_if(variant.runs.begin(), variant.runs.end(), [](const RunResult& run) { return run.diverged; }));
  if (diverged > 0) return str(diverged, " of ", planned, " runs of ", variant.variant.label, " diverged");
  if (variant.runs.size() >= planned) return "";
  return str(variant.runs.size(), " of ", planned, " runs of ", variant.variant.label, " finished");
}

void correct_p(const std::vector<MetricSummary*>& compared) {
  correct(compared, &MetricSummary::p_alone, &MetricSummary::p);
  correct(compared, &MetricSummary::p_equivalence, &MetricSummary::p_equivalence);
}

double corrected_level(const std::vector<MetricSummary*>& compared) {
  const auto tested = std::count_if(compared.begin(), compared.end(),
                                    [](const MetricSummary* summary) { return summary->p_alone.has_value(); });
  return kLevel / static_cast<double>(std::max<std::ptrdiff_t>(tested, 1));
}

std::string mark_of(const MetricSummary& summary, const MetricInfo& metric) {
  if (!summary.difference) return "cannot tell";
  if (*summary.difference == 0 && summary.ci95_half_width == 0.0) return "no difference";  // pairs are bit-identical
  if (summary.p && *summary.p < kLevel) {
    return (*summary.difference > 0) == metric.higher_better ? "better" : "worse";
  }
  if (summary.p_equivalence && *summary.p_equivalence < kLevel) return "no difference";
  return "cannot tell";
}

std::vector<double> paired_differences(const VariantResult& variant, const VariantResult& other,
                                       const MetricInfo& metric, const MetricContext& context) {
  std::vector<double> differences;
  for (const RunResult& run : variant.runs) {
    for (const RunResult& partner : other.runs) {
      if (partner.seed != run.seed) continue;
      const std::optional<double> a = metric.of(run, context);
      const std::optional<double> b = metric.of(partner, context);
      if (a && b) differences.push_back(*a - *b);
    }
  }
  return differences;
}

void summarise(Results& results) {
  if (results.variants.empty()) return;
  results.target = target_of(results);
  for (VariantResult& variant : results.variants) variant.summary.clear();
  const MetricContext context = context_of(results);
  for (const MetricInfo& metric : metrics()) compare(results, metric, context);
  results.scaling = fit_groups(results);
  results.findings = findings_of(results);
}

}  // namespace lamina::lab
