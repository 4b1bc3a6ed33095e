#include "lamina/train/curve_axes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "lamina/base/error.h"

namespace lamina::train {
namespace {

std::string formatted(double value, int decimals) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

int decimals_for(double step) { return std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9))); }

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

/// The smallest value that at least this share of the values does not exceed. Reorders `values`.
double quantile(std::vector<double>& values, double share) {
  const auto at = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

}  // namespace

double CurveAxis::share(double value) const {
  return logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
}

std::string CurveAxis::label(double tick) const {
  struct Unit {
    double size;
    const char* name;
  };
  constexpr std::array<Unit, 4> kUnits{{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};
  // Ticks without a common step are formatted by their own magnitude.
  const double largest = tick_step > 0 ? std::max(std::abs(low), std::abs(high)) : tick;
  const double step = tick_step > 0 ? tick_step : std::pow(10.0, std::floor(std::log10(tick) + 1e-9));
  for (const Unit& unit : kUnits) {
    // "5,000" is easier to read than "5k".
    if (largest < (unit.size == 1e3 ? 2e4 : unit.size)) continue;
    return tick == 0 ? "0" : formatted(tick / unit.size, decimals_for(step / unit.size)) + unit.name;
  }
  return formatted(tick, decimals_for(step));
}

CurveAxis axis_of(double low, double high, int ticks) {
  if (!(high > low)) {  // a single value: add a margin
    const double room = std::max(std::abs(low) * 0.1, 0.5);
    high = low + room;
    low -= room;
  }
  CurveAxis axis{low, high, 1, {}, false};
  const double rough = (high - low) / ticks;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  axis.tick_step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough) axis.tick_step = factor * power;
  }
  const double first = std::ceil(low / axis.tick_step - 1e-9) + 0.0;  // + 0.0 turns −0 into 0
  for (double n = first; n * axis.tick_step <= high + axis.tick_step * 1e-9; ++n)
    axis.ticks.push_back(n * axis.tick_step);
  return axis;
}

CurveAxis log_axis_of(double low, double high, int ticks) {
  LAMINA_CHECK(low > 0, "a logarithmic side from ", low, "; expected more than 0");
  if (!(high > low)) {
    high = low * 2;
    low /= 2;
  }
  CurveAxis axis{low, high, 0, {}, true};
  const auto first = static_cast<int>(std::floor(std::log10(low)));
  const auto last = static_cast<int>(std::ceil(std::log10(high)));
  for (const bool dense : {true, false}) {
    axis.ticks.clear();
    for (int power = first; power <= last; ++power) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double tick = factor * std::pow(10.0, power);
        const bool inside = tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9);
        if (inside && (dense || factor == 1)) axis.ticks.push_back(tick);
      }
    }
    if (axis.ticks.size() <= static_cast<size_t>(ticks)) break;
  }
  // The range spans less than a factor of about two, so linear ticks are more useful.
  if (axis.ticks.size() < 2) {
    const CurveAxis usual = axis_of(low, high, ticks);
    axis.ticks = usual.ticks;
    axis.tick_step = usual.tick_step;
  }
  return axis;
}

double CurveAxes::of(const RunPoint& point) const {
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
        last = std::max(last, axes.of(point));
        seconds = std::max(seconds, point.seconds);
      }
    }
  }
  LAMINA_CHECK(!losses.empty() || !validation.empty(), "no run has a loss to draw");
  LAMINA_CHECK(last > 0, "the logs hold no ",
               x == CurveX::tokens    ? "tokens"
               : x == CurveX::seconds ? "seconds"
                                      : "step",
               " to draw the loss over; use --x step");
  if (x == CurveX::seconds) {
    axes.seconds_per_unit = seconds > 3 * 3600 ? 3600 : seconds > 300 ? 60 : 1;
    last /= axes.seconds_per_unit;
  }
  axes.x_name = x == CurveX::step               ? "step"
                : x == CurveX::tokens           ? "tokens"
                : axes.seconds_per_unit == 3600 ? "hours"
                : axes.seconds_per_unit == 60   ? "minutes"
                                                : "seconds";
  axes.x = axis_of(0, last, x_ticks);
  std::vector<double> all = losses;
  all.insert(all.end(), validation.begin(), validation.end());
  const double low = *std::min_element(all.begin(), all.end());
  const double high = quantile(all, 0.98);
  const double room = 0.04 * std::max(high - low, 1e-6);
  axes.y = high > low ? axis_of(low - room, high + room, y_ticks) : axis_of(low, low, y_ticks);
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
  if (!train.empty()) text += " training " + formatted(mean_of(train), 3);
  if (validation.empty()) return text;
  text += str(train.empty() ? " " : ", ", "validation ", formatted(mean_of(validation), 3));
  if (best_is_last) return text;
  const std::string at = group.runs.size() == 1 ? " at step " + formatted(best_step, 0) : "";
  return text + str(" (best ", formatted(mean_of(best), 3), at, ")");
}

size_t text_columns(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace lamina::train
