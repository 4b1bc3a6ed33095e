#include "lamina/plot/axis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "lamina/base/error.h"

namespace lamina::plot {
namespace {

std::string formatted(double value, int decimals) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

int decimals_for(double step) { return std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9))); }

}  // namespace

double Axis::share(double value) const {
  return logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
}

std::string Axis::label(double tick) const {
  struct Unit {
    double size;
    const char* name;
  };
  constexpr std::array<Unit, 4> kUnits{{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};
  // Ticks without a common step are each formatted by their own magnitude.
  const double largest = tick_step > 0 ? std::max(std::abs(low), std::abs(high)) : tick;
  const double step = tick_step > 0 ? tick_step : std::pow(10.0, std::floor(std::log10(tick) + 1e-9));
  for (const Unit& unit : kUnits) {
    // "5,000" is easier to read than "5k".
    if (largest < (unit.size == 1e3 ? 2e4 : unit.size)) continue;
    return tick == 0 ? "0" : formatted(tick / unit.size, decimals_for(step / unit.size)) + unit.name;
  }
  return formatted(tick, decimals_for(step));
}

Axis linear_axis(double low, double high, int ticks) {
  if (!(high > low)) {  // a single value: add a margin
    const double room = std::max(std::abs(low) * 0.1, 0.5);
    high = low + room;
    low -= room;
  }
  Axis axis{low, high, 1, {}, false};
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

Axis log_axis(double low, double high, int ticks) {
  LAMINA_CHECK(low > 0, "log_axis: low is ", low, "; expected more than 0");
  if (!(high > low)) {
    high = low * 2;
    low /= 2;
  }
  Axis axis{low, high, 0, {}, true};
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
  // The range spans less than about a factor of two, so linear ticks are more useful.
  if (axis.ticks.size() < 2) {
    const Axis usual = linear_axis(low, high, ticks);
    axis.ticks = usual.ticks;
    axis.tick_step = usual.tick_step;
  }
  return axis;
}

Axis Range::axis(int ticks) const {
  const double margin = 0.05 * (high - low);
  // Values that differ only by rounding count as one value; ticks between them would have equal labels.
  const bool apart = high - low > 1e-9 * std::max(std::abs(low), std::abs(high));
  return apart ? linear_axis(low - margin, high + margin, ticks) : linear_axis(low, low, ticks);
}

}  // namespace lamina::plot
