#include "lamina/train/curve_axes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "lamina/base/error.h"

namespace lamina::train {
namespace {

std::string fixed(double value, int decimals) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

/// The smallest value that is at least as large as this share of all values. Reorders `values`.
double quantile(std::vector<double>& values, double share) {
  const auto at = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

}  // namespace

double CurveAxes::x_of(const RunPoint& point) const {
  switch (kind) {
    case CurveX::tokens: return point.tokens;
    case CurveX::seconds: return point.seconds / seconds_per_unit;
    default: return point.step;
  }
}

CurveAxes curve_axes(const std::vector<RunLog>& runs, CurveX x, int x_ticks, int y_ticks) {
  CurveAxes axes;
  axes.kind = x;
  double last = 0;
  double seconds = 0;
  std::vector<double> losses;
  std::vector<double> validation;
  for (const RunLog& run : runs) {
    for (const auto* points : {&run.train, &run.validation}) {
      for (const RunPoint& point : *points) {
        (points == &run.train ? losses : validation).push_back(point.loss);
        last = std::max(last, axes.x_of(point));
        seconds = std::max(seconds, point.seconds);
      }
    }
  }
  LAMINA_CHECK(!losses.empty() || !validation.empty(), "no run has a loss to plot; wait for the first logged update");
  LAMINA_CHECK(last > 0, "the logs have no ",
               x == CurveX::tokens    ? "tokens"
               : x == CurveX::seconds ? "seconds"
                                      : "step",
               " for the x axis; use --x step");
  if (x == CurveX::seconds) {
    axes.seconds_per_unit = seconds > 3 * 3600 ? 3600 : seconds > 300 ? 60 : 1;
    last /= axes.seconds_per_unit;
  }
  axes.x_name = x == CurveX::step               ? "step"
                : x == CurveX::tokens           ? "tokens"
                : axes.seconds_per_unit == 3600 ? "hours"
                : axes.seconds_per_unit == 60   ? "minutes"
                                                : "seconds";
  axes.x = plot::linear_axis(0, last, x_ticks);
  std::vector<double> all = losses;
  all.insert(all.end(), validation.begin(), validation.end());
  const double low = *std::min_element(all.begin(), all.end());
  const double high = quantile(all, 0.98);
  const double room = 0.04 * std::max(high - low, 1e-6);
  axes.y = high > low ? plot::linear_axis(low - room, high + room, y_ticks) : plot::linear_axis(low, low, y_ticks);
  return axes;
}

std::vector<CurveGroup> curve_groups(const std::vector<RunLog>& runs) {
  std::vector<CurveGroup> groups;
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::string& variant = runs[i].variant;
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const CurveGroup& group) {
      return !variant.empty() && runs[group.runs[0]].variant == variant;
    });
    if (same == groups.end()) {
      groups.push_back({variant.empty() ? runs[i].name : variant, {i}});
    } else {
      same->runs.push_back(i);
    }
  }
  return groups;
}

std::string curve_summary(const CurveGroup& group, const std::vector<RunLog>& runs) {
  std::vector<double> train;
  std::vector<double> validation;
  std::vector<double> best;
  bool best_is_last = true;
  double best_step = 0;
  for (const size_t index : group.runs) {
    const RunLog& run = runs[index];
    if (!run.train.empty()) train.push_back(run.train.back().loss);
    if (run.validation.empty()) continue;
    const RunPoint least = *std::min_element(run.validation.begin(), run.validation.end(),
                                             [](const RunPoint& a, const RunPoint& b) { return a.loss < b.loss; });
    validation.push_back(run.validation.back().loss);
    best.push_back(least.loss);
    best_step = least.step;
    best_is_last = best_is_last && least.step == run.validation.back().step;
  }
  std::string text = group.name;
  text += group.runs.size() > 1 ? str(", ", group.runs.size(), " runs:") : ":";
  if (!train.empty()) text += " training " + fixed(mean_of(train), 3);
  if (validation.empty()) return text;
  text += str(train.empty() ? " " : ", ", "validation ", fixed(mean_of(validation), 3));
  if (best_is_last) return text;
  const std::string at = group.runs.size() == 1 ? " at step " + fixed(best_step, 0) : "";
  return text + str(" (best ", fixed(mean_of(best), 3), at, ")");
}

}  // namespace lamina::train
