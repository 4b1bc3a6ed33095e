#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "lamina/arch/fields.h"

namespace lamina::train {

// Learning rate schedules. Each begins with a linear warm-up: update s (from 0) of `warmup` has the factor (s + 1) /
// warmup. Then the factor falls from 1 to min_lr_ratio.

inline constexpr arch::Limits kShare{0, 1};

struct CosineSchedule {
  static constexpr std::string_view kKind = "cosine";
  static constexpr std::string_view kDoc = "half a cosine from the highest to the final rate";
  int64_t warmup = 100;
  double min_lr_ratio = 0.1;
  static void visit_fields(auto& self, auto&& field) {
    field("warmup", self.warmup, "updates over which the rate rises from 0", arch::kCount);
    field("min_lr_ratio", self.min_lr_ratio, "final rate as a share of the highest", kShare);
  }
  bool operator==(const CosineSchedule&) const = default;
};

struct LinearSchedule {
  static constexpr std::string_view kKind = "linear";
  static constexpr std::string_view kDoc = "a straight line from the highest to the final rate";
  int64_t warmup = 100;
  double min_lr_ratio = 0.0;
  static void visit_fields(auto& self, auto&& field) {
    field("warmup", self.warmup, "updates over which the rate rises from 0", arch::kCount);
    field("min_lr_ratio", self.min_lr_ratio, "final rate as a share of the highest", kShare);
  }
  bool operator==(const LinearSchedule&) const = default;
};

struct ConstantSchedule {
  static constexpr std::string_view kKind = "constant";
  static constexpr std::string_view kDoc = "the highest rate after the warm-up";
  int64_t warmup = 0;
  static void visit_fields(auto& self, auto&& field) {
    field("warmup", self.warmup, "updates over which the rate rises from 0", arch::kCount);
  }
  bool operator==(const ConstantSchedule&) const = default;
};

/// Warmup-stable-decay (Hu et al. 2024, arXiv:2404.06395).
struct WsdSchedule {
  static constexpr std::string_view kKind = "wsd";
  static constexpr std::string_view kDoc =
      "warm-up, stable, decay: the highest rate, then a straight line down at the end";
  int64_t warmup = 100;
  double decay = 0.2;
  double min_lr_ratio = 0.0;
  static void visit_fields(auto& self, auto&& field) {
    field("warmup", self.warmup, "updates over which the rate rises from 0", arch::kCount);
    field("decay", self.decay, "share of all updates, at the end, over which the rate falls", kShare);
    field("min_lr_ratio", self.min_lr_ratio, "final rate as a share of the highest", kShare);
  }
  bool operator==(const WsdSchedule&) const = default;
};

using Schedule = std::variant<CosineSchedule, LinearSchedule, ConstantSchedule, WsdSchedule>;

/// Factor on the learning rate at update `step` (from 0) of `steps`. In a decay of n updates from update b on, update s
/// has progress (s − b) / n; so progress 1 would come after the last update.
double lr_factor(const Schedule& schedule, int64_t step, int64_t steps);

}  // namespace lamina::train
