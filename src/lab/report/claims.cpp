#include <algorithm>
#include <cmath>

#include "lamina/base/error.h"
#include "lamina/lab/report/columns.h"
#include "lamina/lab/report/effects.h"
#include "lamina/lab/run/format.h"
#include "lamina/lab/run/metrics.h"
#include "lamina/lab/run/statistics.h"

namespace lamina::lab::report {
namespace {

std::string percent(double share) {
  std::string text = printed("%+.1f", 100 * share);
  if (text.starts_with("-")) text.replace(0, 1, "−");
  if (text == "+0.0" || text == "−0.0") text = "0.0";
  return text;
}

/// A run's value of a metric. Older runs do not store perplexity; it is then computed from the loss.
Number claimed_value(const Run& run, const std::string& metric) {
  const auto found = run.values.find(metric);
  if (found != run.values.end() && found->second) return found->second;
  const auto loss = run.values.find("best_loss");
  if (metric != "perplexity" || loss == run.values.end() || !loss->second) return {};
  return std::exp(*loss->second);
}

/// For example "+2.0 % or more", "−5.0 to +1.0 %". A bound of −100 % or less stands for none.
std::string claimed_range(const Study& study, const Claim& claim) {
  const Words& words = study.words();
  if (!claim.to) {
    return claim.from == 0 ? words("claims.gain_any") : words("claims.at_least", {{"from", percent(claim.from)}});
  }
  if (claim.from <= -1) {
    return *claim.to == 0 ? words("claims.loss_any") : words("claims.at_most", {{"to", percent(*claim.to)}});
  }
  return words("claims.between", {{"from", percent(claim.from)}, {"to", percent(*claim.to)}});
}

/// The measured relative gain with its interval, for example "+1.8 % (+0.3 to +3.3 %), 3 seeds". Empty if not measured.
std::string measured_gain(const Study& study, const Claim& claim) {
  const Variant* variant = study.find(claim.variant);
  const Variant* other = claim.against.empty() ? study.find(study.base) : study.find(claim.against);
  const MetricInfo* metric = find_metric(claim.metric);
  if (variant == nullptr || other == nullptr || metric == nullptr) return "";
  std::vector<double> differences;
  std::vector<double> reference;
  for (const Run& run : other->runs) {
    if (const Number value = claimed_value(run, claim.metric)) reference.push_back(*value);
    for (const Run& own : variant->runs) {
      const Number a = claimed_value(own, claim.metric);
      const Number b = claimed_value(run, claim.metric);
      if (own.seed == run.seed && a && b) differences.push_back(*a - *b);
    }
  }
  const Words& words = study.words();
  // Runs that lack the measure, as those that never reach the target, leave a selection of the seeds.
  const size_t seeds = std::min(variant->runs.size(), other->runs.size());
  if (differences.size() < seeds) {
    return words("claims.selection", {{"pairs", str(differences.size())}, {"seeds", str(seeds)}});
  }
  if (differences.empty() || mean_of(reference) == 0) return "";
  const PairedTest test = paired_test(differences);
  const double scale = (metric->higher_better ? 1 : -1) / std::abs(mean_of(reference));
  std::string text = words("claims.gain", {{"gain", percent(test.difference * scale)}});
  if (test.ci95_half_width) {
    const double half = *test.ci95_half_width * std::abs(scale);
    text += words("claims.range", {{"low", percent(test.difference * scale - half)},
                                   {"high", percent(test.difference * scale + half)}});
  }
  return text + words("claims.seeds", {{"seeds", str(test.pairs)}});
}

void add_divergence_notes(const Study& study, std::vector<std::string>& notes) {
  for (const Variant& variant : study.variants) {
    const auto diverged =
        std::count_if(variant.runs.begin(), variant.runs.end(), [](const Run& run) { return run.diverged; });
    if (diverged == 0) continue;
    notes.push_back(
        study.words()("note.diverged",
                      {{"variant", variant.label}, {"diverged", str(diverged)}, {"runs", str(variant.runs.size())}}));
  }
}

/// Adds a note if best and final loss differ by more than the margin, which means that runs overfit.
void add_overfitting_notes(const Study& study, std::vector<std::string>& notes) {
  for (const Variant& variant : study.variants) {
    const Measure best = measure_of(variant, "best_loss");
    const Measure last = measure_of(variant, "final_loss");
    const Number step = measure_of(variant, "best_step").mean;
    if (!best.mean || !last.mean || !step) continue;
    const double rise = *last.mean - *best.mean;
    if (rise <= study.margin.value_or(0.005) * *best.mean) continue;
    const Number steps = variant.steps ? variant.steps : study.steps;
    notes.push_back(study.words()("note.overfits", {{"variant", variant.label},
                                                    {"rise", written(rise, Style::loss)},
                                                    {"share", percent_of(rise / *best.mean)},
                                                    {"step", written(std::round(*step), Style::count)},
                                                    {"steps", steps ? written(*steps, Style::count) : "?"}}));
  }
}

/// Adds a note about variants whose runs all have their best loss at the last evaluation: they have not converged.
void add_unconverged_note(const Study& study, std::vector<std::string>& notes) {
  std::string labels;
  for (const Variant& variant : study.variants) {
    const bool improving =
        !variant.runs.empty() && std::all_of(variant.runs.begin(), variant.runs.end(), [](const Run& run) {
          const auto best = run.values.find("best_step");
          return !run.diverged && best != run.values.end() && best->second && !run.evaluations.step.empty() &&
                 *best->second == run.evaluations.step.back();
        });
    if (improving) labels += (labels.empty() ? "" : study.words()("list.separator")) + variant.label;
  }
  if (!labels.empty()) notes.push_back(study.words()("note.unconverged", {{"variants", labels}}));
}

}  // namespace

std::vector<ClaimRow> claims_of(const Study& study) {
  std::vector<ClaimRow> rows;
  for (const Finding& finding : study.findings) {
    if (finding.kind != "claim") continue;
    ClaimRow row{finding.claim.empty() ? finding.text : finding.claim, "", "", finding.verdict};
    for (const Claim& claim : study.claims) {
      if (claim.text != finding.claim) continue;
      row.claimed = claimed_range(study, claim);
      row.measured = measured_gain(study, claim);
      const Column column = column_of(study, claim.metric);
      if (!row.measured.empty()) row.measured = column.title + study.words()("colon") + row.measured;
    }
    if (row.measured.empty() && !finding.claim.empty()) row.measured = finding.text;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<std::string> notes_of(const Study& study) {
  std::vector<std::string> notes;
  if (study.judged_again) {
    notes.push_back(study.words()("note.judged_again", {{"margin", percent_of(study.margin.value_or(0))}}));
  }
  add_overfitting_notes(study, notes);
  if (study.mode != "stretch") add_unconverged_note(study, notes);
  add_divergence_notes(study, notes);
  for (const Finding& finding : study.findings) {
    const bool derived = finding.text.ends_with(" runs diverged.") ||
                         finding.text.starts_with("Still improving at the end of training: ") ||
                         finding.text.find(": the final loss is ") != std::string::npos;
    if (finding.kind == "note" && !derived) notes.push_back(finding.text);
  }
  return notes;
}

}  // namespace lamina::lab::report
