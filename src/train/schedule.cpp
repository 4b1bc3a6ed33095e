#include "lamina/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lamina::train {
namespace {

/// The position of `step` between `begin` and `end`, as a number in [0, 1].
double progress(int64_t step, int64_t begin, int64_t end) {
  if (end <= begin) return step < begin ? 0.0 : 1.0;
  return std::clamp(static_cast<double>(step - begin) / static_cast<double>(end - begin), 0.0, 1.0);
}

double fall(const CosineSchedule& s, int64_t step, int64_t steps) {
  const double along = progress(step, s.warmup, steps);
  return s.min_lr_ratio + (1.0 - s.min_lr_ratio) * 0.5 * (1.0 + std::cos(std::numbers::pi * along));
}

double fall(const LinearSchedule& s, int64_t step, int64_t steps) {
  return 1.0 - (1.0 - s.min_lr_ratio) * progress(step, s.warmup, steps);
}

double fall(const ConstantSchedule& /*s*/, int64_t /*step*/, int64_t /*steps*/) { return 1.0; }

double fall(const WsdSchedule& s, int64_t step, int64_t steps) {
  const auto length = static_cast<int64_t>(std::llround(s.decay * static_cast<double>(steps)));
  const int64_t begin = std::max(s.warmup, steps - length);
  return length == 0 ? 1.0 : 1.0 - (1.0 - s.min_lr_ratio) * progress(step, begin, steps);
}

}  // namespace

double lr_factor(const Schedule& schedule, int64_t step, int64_t steps) {
  return std::visit(
      [&](const auto& s) {
        if (step < s.warmup) return static_cast<double>(step + 1) / static_cast<double>(s.warmup);
        return fall(s, step, steps);
      },
      schedule);
}

}  // namespace lamina::train
