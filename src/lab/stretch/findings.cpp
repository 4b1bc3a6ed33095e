#include <algorithm>
#include <cmath>

#include "lamina/lab/run/findings.h"
#include "lamina/lab/run/format.h"

namespace lamina::lab {
namespace {

std::string label_of(const Results& results, const std::string& name) {
  for (const VariantResult& variant : results.variants) {
    if (variant.variant.name == name) return variant.variant.label;
  }
  return name;
}

/// A sentence about a row at the longest length.
Finding row_finding(const Results& results, const StretchRow& row) {
  const StretchResult& stretch = *results.stretch;
  const std::optional<double> near = row.non_overlapping.front();
  const std::optional<double> far = row.non_overlapping.back();
  std::string text = label_of(results, row.variant) + ": ";
  if (!near || !far) {
    text += str("cannot read ", stretch.lengths.back(), " tokens", row.cannot.empty() ? "" : ": " + row.cannot, ".");
  } else {
    const double growth = 100 * (*far / *near - 1);
    text += str("perplexity ", fixed(*near, 2), " at ", stretch.lengths.front(), " tokens and ", fixed(*far, 2), " at ",
                stretch.lengths.back(), " in non-overlapping windows (", fixed(std::abs(growth), 1),
                growth < 0 ? " % less), " : " % more), ", fixed(row.sliding.front().value_or(0), 2), " and ",
                fixed(row.sliding.back().value_or(0), 2), " in sliding windows.");
  }
  return {"note", text, "", ""};
}

/// Published perplexity growth at four times the training length (non-overlapping windows), and the training length.
struct GrowthClaim {
  const char* variant;
  double growth;
  int64_t trained;
};
constexpr GrowthClaim kGrowthClaims[] = {{"rope", 0.20, 2048}, {"alibi", 0.03, 2048}};

/// A single trained model has no confidence interval, so such a claim gets no verdict.
void add_claims(const Results& results, std::vector<Finding>& findings) {
  const StretchResult& stretch = *results.stretch;
  const auto at = std::find(stretch.lengths.begin(), stretch.lengths.end(), 4 * stretch.trained_length);
  if (at == stretch.lengths.end()) return;
  const auto index = static_cast<size_t>(at - stretch.lengths.begin());
  for (const GrowthClaim& claim : kGrowthClaims) {
    for (const StretchRow& row : stretch.rows) {
      if (row.variant != claim.variant || !row.non_overlapping.front() || !row.non_overlapping[index]) continue;
      const double growth = *row.non_overlapping[index] / *row.non_overlapping.front() - 1;
      const std::string label = label_of(results, row.variant);
      findings.push_back(
          {"claim",
           str(label, ": perplexity grows by ", fixed(100 * growth, 1), " % at four times the length (",
               stretch.trained_length, " to ", *at, " tokens, non-overlapping windows; one model, no interval)."),
           "cannot tell",
           str(label, " grows by ", fixed(100 * claim.growth, 0), " % from ", claim.trained, " to ", 4 * claim.trained,
               " tokens")});
    }
  }
}

}  // namespace

std::vector<Finding> stretch_findings(const Results& results) {
  std::vector<Finding> findings;
  for (const StretchRow& row : results.stretch->rows) findings.push_back(row_finding(results, row));
  add_claims(results, findings);
  return findings;
}

}  // namespace lamina::lab
