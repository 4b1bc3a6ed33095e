#include "lamina/lab/report/series.h"

#include <algorithm>
#include <cmath>

#include "lamina/lab/report/columns.h"
#include "lamina/lab/run/statistics.h"

namespace lamina::lab::report {
namespace {

// More points than pixels would be invisible and make files large.
constexpr size_t kMostPoints = 400;
constexpr double kRounding = 1e-9;  // summing in a different order may change a value by this much
constexpr double kSameCost = 0.02;
constexpr double kLevel = 0.005;

/// The values of all seeds at one step.
struct AtStep {
  std::vector<double> losses;
  std::vector<double> seconds;
  Number tokens;
};

Band::Point point_of(double x, const AtStep& at) {
  const double mean = mean_of(at.losses);
  const double spread = deviation_of(at.losses).value_or(0);
  Band::Point point{x, mean, mean - spread, mean + spread, at.losses.size()};
  point.tokens = at.tokens;
  if (at.seconds.size() == at.losses.size()) point.seconds = mean_of(at.seconds);
  return point;
}

/// Averages groups of neighbouring points and their bounds. A group is placed at its last step, so that the final step
/// stays.
std::vector<Band::Point> thinned(const std::vector<Band::Point>& points) {
  const size_t together = (points.size() + kMostPoints - 1) / kMostPoints;
  if (together <= 1) return points;
  std::vector<Band::Point> result;
  for (size_t end = points.size() % together == 0 ? together : points.size() % together; end <= points.size();
       end += together) {
    const size_t begin = end > together ? end - together : 0;
    const Band::Point& last = points[end - 1];
    Band::Point joined{last.x, 0, 0, 0, last.seeds, last.tokens, last.seconds};
    for (size_t i = begin; i < end; ++i) {
      const double share = 1 / static_cast<double>(end - begin);
      joined.mean += share * points[i].mean;
      joined.low += share * points[i].low;
      joined.high += share * points[i].high;
    }
    result.push_back(joined);
  }
  return result;
}

/// The range of the costs relative to the highest cost.
double relative_range(const CostChart& chart) {
  double low = chart.points.front().cost;
  double high = low;
  for (const CostPoint& point : chart.points) {
    low = std::min(low, point.cost);
    high = std::max(high, point.cost);
  }
  const double largest = std::max(std::abs(low), std::abs(high));
  return largest == 0 ? 0 : (high - low) / largest;
}

/// Number of costs that differ by more than half a percent.
size_t distinct_costs(const CostChart& chart) {
  std::vector<double> costs;
  for (const CostPoint& point : chart.points) costs.push_back(point.cost);
  std::sort(costs.begin(), costs.end());
  size_t count = 1;
  double last = costs.front();
  for (const double cost : costs) {
    if (cost - last <= kLevel * std::abs(cost)) continue;
    ++count;
    last = cost;
  }
  return count;
}

}  // namespace

std::vector<Band> bands_of(const Study& study, Losses losses) {
  std::vector<Band> bands;
  for (const Variant& variant : study.variants) {
    std::map<double, AtStep> at_step;
    for (const Run& run : variant.runs) {
      const Series& series = losses == Losses::validation ? run.evaluations : run.curve;
      for (size_t i = 0; i < series.step.size(); ++i) {
        if (!series.loss[i]) continue;
        AtStep& at = at_step[series.step[i]];
        at.losses.push_back(*series.loss[i]);
        if (run.tokens_per_step) at.tokens = *run.tokens_per_step * series.step[i];
        if (!series.seconds.empty() && series.seconds[i]) at.seconds.push_back(*series.seconds[i]);
      }
    }
    Band band{variant.label, {}};
    for (const auto& [step, at] : at_step) band.points.push_back(point_of(step, at));
    band.points = thinned(band.points);
    if (!band.points.empty()) bands.push_back(std::move(band));
  }
  return bands;
}

std::vector<CostChart> cost_charts(const Study& study) {
  std::vector<CostChart> charts;
  for (const char* key : {"parameters", "flops_per_token", "tokens_per_second", "decode_tokens_per_second",
                          "kv_bytes_per_token", "peak_memory_bytes"}) {
    CostChart chart{key, column_of(study, key).title, {}};
    for (const Variant& variant : study.variants) {
      const Measure cost = measure_of(variant, key);
      const Measure quality = measure_of(variant, study.quality());
      if (cost.mean && quality.mean) chart.points.push_back({variant.label, *cost.mean, *quality.mean, quality.spread});
    }
    if (!chart.points.empty() && relative_range(chart) > kRounding) charts.push_back(std::move(chart));
  }
  // Variants of matched size differ only slightly, by rounding of d_ff. Chart such costs only if there are no others.
  const auto wide = [](const CostChart& chart) { return relative_range(chart) >= kSameCost; };
  if (std::any_of(charts.begin(), charts.end(), wide)) {
    std::erase_if(charts, [&wide](const CostChart& chart) { return !wide(chart); });
  }
  std::stable_sort(charts.begin(), charts.end(),
                   [](const CostChart& a, const CostChart& b) { return distinct_costs(a) > distinct_costs(b); });
  return charts;
}

std::vector<std::string> labels_of(const Study& study) {
  std::vector<std::string> labels;
  const auto add = [&labels](const std::string& label) {
    if (std::find(labels.begin(), labels.end(), label) == labels.end()) labels.push_back(label);
  };
  // Groups come first: they are few, so that their curves are solid lines.
  if (study.scaling) {
    for (const ScalingGroup& group : study.scaling->groups) add(group.name);
  }
  for (const Variant& variant : study.variants) add(variant.label);
  if (study.stretch) {
    for (const StretchRow& row : study.stretch->rows) add(study.label_of(row.variant));
    for (const PasskeyRow& row : study.stretch->passkey) add(study.label_of(row.variant));
  }
  return labels;
}

}  // namespace lamina::lab::report
