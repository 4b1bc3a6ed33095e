#include "lamina/lab/run/findings.h"

#include <algorithm>
#include <cmath>

#include "lamina/arch/plan.h"
#include "lamina/lab/run/format.h"
#include "lamina/lab/run/statistics.h"

namespace lamina::lab {
namespace {

/// Four decimals, or scientific notation for values that would round to zero.
std::string loss_text(double value) { return printed(value < 5e-5 ? "%.1e" : "%.4f", value); }
std::string signed_loss(double value) { return (value < 0 ? "−" : "+") + loss_text(std::abs(value)); }

/// Prefix of a verdict if the claim was made at another size than the study's.
constexpr const char* kAtOurSize = "at our size: ";

std::string p_text(double p) { return p < 0.001 ? "p < 0.001" : printed("p = %.3f", p); }
std::string seeds_text(size_t seeds) { return str(seeds, seeds == 1 ? " seed" : " seeds"); }

const MetricInfo& main_metric(const Results& results) {
  return *find_metric(results.study.metric == Metric::accuracy ? "accuracy" : "best_loss");
}

const VariantResult* find_variant(const Results& results, const std::string& name) {
  for (const VariantResult& variant : results.variants) {
    if (variant.variant.name == name) return &variant;
  }
  return nullptr;
}

/// The basis of a verdict: the p value that decided and the number of seeds; for "cannot tell", the number of seeds
/// needed.
std::string grounds(const Results& results, const MetricSummary& summary, size_t pairs, bool corrected) {
  const bool equivalent = summary.mark == "no difference" && summary.p_equivalence && *summary.difference != 0;
  std::string text;
  if (equivalent) text = str("smaller than ", percent_of(results.study.margin), ", ");
  text += p_text(equivalent ? *summary.p_equivalence : *summary.p);
  text += (corrected ? " after Holm's correction, " : ", ") + seeds_text(pairs);
  if (summary.mark == "cannot tell") {
    text += str("; a difference of ", percent_of(results.study.margin), " takes ",
                summary.seeds_needed ? str("about ", *summary.seeds_needed) : std::string("over 10,000"), " seeds");
  }
  return text;
}

/// ", at equal training FLOPs": what the study's budget makes equal. Empty for equal updates, the default.
std::string budget_text(const Study& study) {
  if (!study.budget || study.budget->unit == BudgetUnit::updates) return "";
  const BudgetUnit unit = study.budget->unit;
  return str(", at equal ", unit == BudgetUnit::tokens  ? "tokens"
                            : unit == BudgetUnit::flops ? "training FLOPs"
                                                        : "training time");
}

/// The size of a variant relative to the other: ", at equal parameters" or ", with 9.1 % fewer parameters". Compares
/// FLOPs per token if the study matches compute. Empty if the sizes were not counted.
std::string sizes_text(const Results& results, const VariantResult& variant, const VariantResult& other) {
  const bool compute = results.study.matching == Matching::compute;
  const auto size = [&](const VariantResult& v) {
    return compute ? v.flops_per_token : static_cast<double>(v.parameters);
  };
  if (!(size(variant) > 0) || !(size(other) > 0)) return "";
  const double difference = size(variant) / size(other) - 1;
  const char* what = compute ? "FLOPs per token" : "parameters";
  if (std::abs(difference) <= kEqualSize) return str(", at equal ", what);
  return str(", with ", percent_of(std::abs(difference)), difference < 0 ? " fewer " : " more ", what);
}

/// A sentence such as "RoPE: best validation loss 0.0310 (2.1 %) lower than that of Learned (base), 95 % confidence
/// interval −0.0412 to −0.0208, at equal parameters: better (p = 0.004, 3 seeds)."
std::string sentence(const Results& results, const VariantResult& variant, const VariantResult& other,
                     const MetricSummary& summary, bool corrected) {
  const MetricInfo& metric = main_metric(results);
  const size_t pairs = paired_differences(variant, other, metric, context_of(results)).size();
  const std::string reference = other.variant.label + " (" + reference_words(results.study) + ")";
  std::string text = str(variant.variant.label, ": ", metric.words, " ");
  if (!summary.difference) return text + "cannot be compared with that of " + reference + ".";
  const double difference = *summary.difference;
  const double mean = other.summary.at(metric.name).mean.value_or(0);
  const std::string share = mean == 0 ? "" : str(" (", percent_of(std::abs(difference / mean)), ")");
  text += difference == 0 ? "equal to that of " + reference
                          : loss_text(std::abs(difference)) + share + (difference < 0 ? " lower" : " higher") +
                                " than that of " + reference;
  if (summary.ci95_half_width.value_or(0) > 0) {
    text += str(", 95 % confidence interval ", signed_loss(difference - *summary.ci95_half_width), " to ",
                signed_loss(difference + *summary.ci95_half_width));
  }
  text += sizes_text(results, variant, other) + budget_text(results.study);
  for (const VariantResult* part : {&variant, &other}) {
    const std::string unfinished = unfinished_runs(results, *part);
    if (!unfinished.empty()) return text + ": cannot tell (" + unfinished + ").";
  }
  if (!summary.p) return text + ": cannot tell (" + seeds_text(pairs) + ": too few for a test).";
  return text + ": " + summary.mark + " (" + grounds(results, summary, pairs, corrected) + ").";
}

/// Adds a sentence for each variant that compares it with its reference.
void add_comparisons(const Results& results, std::vector<Finding>& findings) {
  const char* metric = main_metric(results).name;
  size_t compared = 0;
  for (const VariantResult& variant : results.variants) compared += variant.summary.contains(metric) ? 1 : 0;
  for (size_t i = 1; i < results.variants.size(); ++i) {
    const VariantResult& variant = results.variants[i];
    const auto found = variant.summary.find(metric);
    if (!variant.cannot.empty()) {
      findings.push_back({"note", variant.variant.label + ": " + variant.cannot, "", ""});
    } else if (found != variant.summary.end()) {
      findings.push_back(
          {"comparison", sentence(results, variant, *reference_of(results, i), found->second, compared > 2), "", ""});
    }
  }
}

/// Adds a note if the chosen value of `path` is at an end of its list: a better value may lie beyond. Values of 0 have
/// nothing beyond.
template <class T>
void add_end_of_list(const VariantResult& variant, const char* path, const char* words, const std::vector<T>& values,
                     std::vector<Finding>& findings) {
  if (values.size() < 2) return;
  const std::vector<std::string>& chosen = variant.trials[*variant.chosen_trial].changes;
  const auto [lowest, highest] = std::minmax_element(values.begin(), values.end());
  for (const auto& [value, end] : {std::pair(*lowest, "lowest"), std::pair(*highest, "highest")}) {
    if (value == 0 || std::find(chosen.begin(), chosen.end(), str(path, "=", value)) == chosen.end()) continue;
    findings.push_back({"note",
                        str(variant.variant.label, ": the best ", words, ", ", value, ", is the ", end,
                            " that was tried; a better one may lie beyond it."),
                        "", ""});
  }
}

/// Adds notes about tuned values at the end of their list.
void add_tuning(const Results& results, std::vector<Finding>& findings) {
  const Tuning& tuning = results.study.tuning;
  for (const VariantResult& variant : results.variants) {
    if (!variant.chosen_trial) continue;
    add_end_of_list(variant, "optimizer.lr", "learning rate", tuning.learning_rates, findings);
    add_end_of_list(variant, "optimizer.weight_decay", "weight decay", tuning.weight_decays, findings);
    add_end_of_list(variant, "schedule.warmup", "warm-up", tuning.warmups, findings);
  }
}

/// Adds a note about variants whose loss rises again: best and final losses differ by more than the margin. Tables show
/// both.
void add_overfitting(const Results& results, std::vector<Finding>& findings) {
  const Study& study = results.study;
  for (size_t i = 0; i < results.variants.size(); ++i) {
    const VariantResult& variant = results.variants[i];
    const bool budgeted = study.budget && i < study.budget->steps.size();
    const auto best = variant.summary.find("best_loss");
    const auto last = variant.summary.find("final_loss");
    const auto step = variant.summary.find("best_step");
    if (best == variant.summary.end() || last == variant.summary.end() || step == variant.summary.end()) continue;
    if (!best->second.mean || !last->second.mean || best->second.runs != last->second.runs) continue;
    const double rise = *last->second.mean - *best->second.mean;
    if (rise <= results.study.margin * *best->second.mean) continue;
    findings.push_back(
        {"note",
         str(variant.variant.label, ": the final loss is ", loss_text(rise), " (",
             percent_of(rise / *best->second.mean), ") above the best, which was reached at step ",
             std::llround(*step->second.mean), " of ", budgeted ? study.budget->steps[i] : study.recipe.steps,
             ": it overfits; early stopping keeps the best."),
         "", ""});
  }
}

/// Whether every run of the variant has its best loss at its last evaluation.
bool improves_to_the_end(const VariantResult& variant) {
  return !variant.runs.empty() && std::all_of(variant.runs.begin(), variant.runs.end(), [](const RunResult& run) {
    return !run.diverged && run.best_loss && !run.evaluation_step.empty() &&
           static_cast<double>(run.best_step) == run.evaluation_step.back();
  });
}

/// Adds a note about variants that had not converged: their losses are those of this budget.
void add_unconverged(const Results& results, std::vector<Finding>& findings) {
  std::string labels;
  for (const VariantResult& variant : results.variants) {
    if (improves_to_the_end(variant)) labels += (labels.empty() ? "" : ", ") + variant.variant.label;
  }
  if (labels.empty()) return;
  findings.push_back({"note",
                      "Still improving at the end of training: " + labels +
                          ". These losses compare the variants at this budget, not at convergence.",
                      "", ""});
}

void add_divergences(const Results& results, std::vector<Finding>& findings) {
  for (const VariantResult& variant : results.variants) {
    size_t diverged = 0;
    for (const RunResult& run : variant.runs) diverged += run.diverged ? 1 : 0;
    if (diverged == 0) continue;
    findings.push_back(
        {"note", str(variant.variant.label, ": ", diverged, " of ", variant.runs.size(), " runs diverged."), "", ""});
  }
}

/// Adds a note that concurrent runs share the device, so that their speeds depend on each other. Generation is measured
/// alone.
void add_concurrency(const Results& results, std::vector<Finding>& findings) {
  if (results.machine.jobs < 2) return;
  findings.push_back(
      {"note",
       str("Up to ", results.machine.jobs,
           " runs at a time: training times and speeds depend on the other runs. Repeat with --jobs 1 to "
           "compare them."),
       "", ""});
}

/// Whether two sizes count as the same setting: they differ at most by a factor of two.
bool same_setting(double claimed, double ours) {
  constexpr double kFactor = 2;
  return ours > 0 && claimed > 0 && ours <= kFactor * claimed && claimed <= kFactor * ours;
}

/// How the claim's setting differs from the study's. Empty if they are the same.
std::string other_setting(const Results& results, const Claim& claim, const VariantResult& variant) {
  const Setting& setting = claim.setting;
  if (setting == Setting{}) return "the claim has no setting";
  const train::Recipe& recipe = results.study.recipe;
  const double length = static_cast<double>(recipe.length > 0 ? recipe.length : results.study.base.context);
  std::string text;
  const auto compare = [&](std::optional<double> claimed, double ours, const char* unit) {
    if (!claimed || same_setting(*claimed, ours)) return;
    text += str(text.empty() ? "the claim is about " : " and ", arch::with_commas(std::llround(*claimed)), unit,
                ", this is ", arch::with_commas(std::llround(ours)));
  };
  compare(setting.parameters, static_cast<double>(variant.parameters), " parameters");
  compare(setting.length, length, " tokens in a sequence");
  compare(setting.steps, static_cast<double>(recipe.steps), " updates");
  return text;
}

/// The verdict on a claim: "holds" if the whole 95 % confidence interval of the relative gain is within the claimed
/// range, "does not" if all of it is outside. If the settings differ, the verdict has the prefix kAtOurSize.
Finding judge(const Results& results, const Claim& claim) {
  Finding finding{"claim", "", "cannot tell", claim.text};
  const VariantResult* variant = find_variant(results, claim.variant);
  const VariantResult* other = claim.against.empty() ? results.variants.data() : find_variant(results, claim.against);
  const MetricInfo& metric = *find_metric(claim.metric);
  if (variant == nullptr || other == nullptr) {
    finding.text = claim.text + ": was not run.";
    return finding;
  }
  for (const VariantResult* part : {variant, other}) {
    const std::string unfinished = part->trained ? unfinished_runs(results, *part) : "";
    if (unfinished.empty()) continue;
    finding.text = str(claim.text, ": ", unfinished, ".");
    return finding;
  }
  const PairedTest test = paired_test(paired_differences(*variant, *other, metric, context_of(results)));
  // Runs that lack the metric, as those that never reach the target, leave a selection of the pairs.
  if (variant->trained && test.pairs > 0 && test.pairs < results.study.seeds.size()) {
    finding.text = str(claim.text, ": only ", test.pairs, " of ", seeds_text(results.study.seeds.size()), " have ",
                       metric.words, " in both.");
    return finding;
  }
  const auto base = other->summary.find(metric.name);
  if (test.pairs == 0 || base == other->summary.end() || !base->second.mean || *base->second.mean == 0) {
    finding.text = str(claim.text, ": ", metric.words, " was not measured for both.");
    return finding;
  }
  const double scale = (metric.higher_better ? 1 : -1) / std::abs(*base->second.mean);
  const double gain = test.difference * scale;
  finding.text = str(variant->variant.label, " against ", other->variant.label, ": ", metric.words, " ",
                     printed("%.2f %% ", 100 * std::abs(gain)), gain >= 0 ? "better" : "worse");
  if (!test.ci95_half_width) {
    finding.text += " (" + seeds_text(test.pairs) + ": too few for a test).";
    return finding;
  }
  const double half_width = *test.ci95_half_width * std::abs(scale);
  finding.text += str(" (95 %: ", printed("%+.2f", 100 * (gain - half_width)), " to ",
                      printed("%+.2f %%", 100 * (gain + half_width)), ", ", seeds_text(test.pairs), ").");
  const double to = claim.to.value_or(1e30);
  const bool enough = claim.from == 0 ? gain - half_width > 0 : gain - half_width >= claim.from;
  if (enough && gain + half_width <= to) finding.verdict = "holds";
  if (gain + half_width < claim.from || gain - half_width > to) finding.verdict = "does not";
  const std::string other_size = other_setting(results, claim, *variant);
  if (other_size.empty() || finding.verdict == "cannot tell") return finding;
  finding.verdict = kAtOurSize + finding.verdict;
  finding.text += " At our size: " + other_size + ".";
  return finding;
}

}  // namespace

std::vector<Finding> findings_of(const Results& results) {
  std::vector<Finding> findings;
  if (results.stretch) findings = stretch_findings(results);
  if (results.study.mode != Mode::stretch) add_comparisons(results, findings);
  add_scaling_findings(results, findings);
  add_overfitting(results, findings);
  if (results.study.mode != Mode::stretch) add_unconverged(results, findings);
  add_tuning(results, findings);
  add_divergences(results, findings);
  add_concurrency(results, findings);
  for (const Claim& claim : results.study.claims) findings.push_back(judge(results, claim));
  return findings;
}

}  // namespace lamina::lab
