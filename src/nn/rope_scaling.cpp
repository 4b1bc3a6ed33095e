#include "lamina/nn/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lamina/ops/position/tables.h"

namespace lamina::nn {
namespace {

/// The theta for which the lowest frequency is divided by `ratio` and the highest is unchanged.
double ntk_theta(double theta, double ratio, int64_t dim) {
  if (dim <= 2) return theta;  // one pair, whose frequency is 1 for every theta
  const auto d = static_cast<double>(dim);
  return theta * std::pow(ratio, d / (d - 2.0));
}

/// The (fractional) index of the pair that makes `rotations` full rotations within `length` positions.
double pair_of_rotations(double rotations, double theta, int64_t dim, int64_t length) {
  const double per_radian = static_cast<double>(length) / (rotations * 2.0 * std::numbers::pi);
  return static_cast<double>(dim) * std::log(per_radian) / (2.0 * std::log(theta));
}

struct Scale {
  const arch::Rope& rope;
  int64_t dim;
  int64_t length;

  std::vector<double> plain(double theta) const { return ops::rotary_frequencies(dim, theta); }

  RopeFrequencies operator()(const arch::NoScaling& /*none*/) const { return {plain(rope.theta)}; }

  RopeFrequencies operator()(const arch::LinearScaling& linear) const {
    RopeFrequencies result{plain(rope.theta)};
    for (double& angle : result.angles) angle /= linear.factor;
    return result;
  }

  RopeFrequencies operator()(const arch::NtkScaling& ntk) const {
    return {plain(ntk_theta(rope.theta, ntk.factor, dim))};
  }

  RopeFrequencies operator()(const arch::DynamicNtkScaling& ntk) const {
    const auto original = static_cast<double>(*ntk.original_length);
    const double longest = std::max(static_cast<double>(length), original);
    return {plain(ntk_theta(rope.theta, ntk.factor * longest / original - (ntk.factor - 1.0), dim))};
  }

  RopeFrequencies operator()(const arch::YarnScaling& yarn) const {
    double low = pair_of_rotations(yarn.beta_fast, rope.theta, dim, *yarn.original_length);
    double high = pair_of_rotations(yarn.beta_slow, rope.theta, dim, *yarn.original_length);
    if (yarn.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(dim - 1));
    if (low == high) high += 0.001;  // avoids a ramp of zero width, as in the published code
    RopeFrequencies result{plain(rope.theta), *yarn.attention_factor};
    for (size_t i = 0; i < result.angles.size(); ++i) {
      const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
      result.angles[i] *= 1.0 - ramp + ramp / yarn.factor;
    }
    return result;
  }

  RopeFrequencies operator()(const arch::Llama3Scaling& bands) const {
    const auto original = static_cast<double>(*bands.original_length);
    RopeFrequencies result{plain(rope.theta)};
    for (double& angle : result.angles) {
      const double turns = original * angle / (2.0 * std::numbers::pi);
      if (turns < bands.low_freq_factor) {
        angle /= bands.factor;
      } else if (turns < bands.high_freq_factor) {  // never true if both factors are equal
        const double kept = (turns - bands.low_freq_factor) / (bands.high_freq_factor - bands.low_freq_factor);
        angle *= (1.0 - kept) / bands.factor + kept;
      }
    }
    return result;
  }

  RopeFrequencies operator()(const arch::LongRopeScaling& scaling) const {
    const std::vector<double>& divisors =
        length > *scaling.original_length ? scaling.long_factor : scaling.short_factor;
    RopeFrequencies result{plain(rope.theta), *scaling.attention_factor};
    for (size_t i = 0; i < result.angles.size(); ++i) result.angles[i] /= divisors[i];
    return result;
  }
};

}  // namespace

RopeFrequencies rope_frequencies(const arch::Rope& rope, int64_t length) {
  return std::visit(Scale{rope, *rope.rotary_dim, length}, rope.scaling);
}

bool depends_on_length(const arch::RopeScaling& scaling) {
  return std::holds_alternative<arch::DynamicNtkScaling>(scaling) ||
         std::holds_alternative<arch::LongRopeScaling>(scaling);
}

}  // namespace lamina::nn
