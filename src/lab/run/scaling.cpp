#include <algorithm>

#include "lamina/lab/run/findings.h"
#include "lamina/lab/run/format.h"
#include "lamina/lab/run/plan.h"

namespace lamina::lab {

std::vector<ScalingResult> fit_groups(const Results& results) {
  std::vector<ScalingResult> fits;
  for (const ScalingGroup& group : scaling_groups(results.study)) {
    ScalingResult result{group.name, group.variants, {}, {}};
    std::vector<double> sizes;
    for (const VariantResult& variant : results.variants) {
      const auto found = std::find(group.variants.begin(), group.variants.end(), variant.variant.name);
      if (found == group.variants.end()) continue;
      const double size = scaling_size(results.study, variant);
      for (const RunResult& run : variant.runs) {
        if (!run.best_loss || run.diverged) continue;
        result.points.push_back({size, run.seed, *run.best_loss});
        sizes.push_back(size);
      }
    }
    if (distinct_sizes(sizes) >= kFewestSizes) result.fit = fit_scaling(result.points);
    fits.push_back(std::move(result));
  }
  return fits;
}

void add_scaling_findings(const Results& results, std::vector<Finding>& findings) {
  const bool compute = results.study.scaling && results.study.scaling->against == ScalingSize::compute;
  for (const ScalingResult& group : results.scaling) {
    if (!group.fit) {
      findings.push_back(
          {"scaling", str(group.group, ": no scaling fit: fewer than three sizes have finished runs."), "", ""});
      continue;
    }
    const ScalingFit& fit = *group.fit;
    std::string text =
        str(group.group, ": best validation loss = ", fixed(fit.irreducible, 3), " + ",
            printed("%.3g", fit.coefficient), " · ", compute ? "C" : "N", "^−", fixed(fit.exponent, 3),
            compute ? " in training FLOPs C" : " in parameters N", "; exponent ", fixed(fit.exponent, 3));
    text += fit.exponent_low
                ? str(", 95 % confidence interval ", fixed(*fit.exponent_low, 3), " to ", fixed(*fit.exponent_high, 3))
                : std::string(" without an interval, which needs two seeds");
    text += str(" (", fit.sizes, " sizes, ", fit.seeds, fit.seeds == 1 ? " seed" : " seeds", ")");
    text += fit.determined ? "." : ": these sizes do not determine the exponent.";
    findings.push_back({"scaling", text, "", ""});
  }
}

}  // namespace lamina::lab
