#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace lamina::bench {

/// Best time of each body in seconds. The bodies take turns, so that a noisy moment hits all of them.
inline std::vector<double> best_times(const std::vector<std::function<void()>>& bodies, double seconds_each = 0.4,
                                      int most = 200) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> best(bodies.size(), std::numeric_limits<double>::infinity());
  for (const auto& body : bodies) body();
  const auto start = Clock::now();
  const double budget = seconds_each * static_cast<double>(bodies.size());
  for (int round = 0; round < most; ++round) {
    for (size_t i = 0; i < bodies.size(); ++i) {
      const auto begin = Clock::now();
      bodies[i]();
      best[i] = std::min(best[i], std::chrono::duration<double>(Clock::now() - begin).count());
    }
    if (round >= 2 && std::chrono::duration<double>(Clock::now() - start).count() > budget) break;
  }
  return best;
}

inline std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(random);
  return values;
}

}  // namespace lamina::bench
