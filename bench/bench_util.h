#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace lamina::bench {

/// Seconds on the wall or, for work of a single thread, of processor time, which a busy machine does not falsify.
inline double seconds_now(bool processor) {
  timespec now{};
  clock_gettime(processor ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// Best time of each body in seconds. The bodies take turns, so that a noisy moment hits all of them.
inline std::vector<double> best_times(const std::vector<std::function<void()>>& bodies, double seconds_each = 0.4,
                                      bool processor = false) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> best(bodies.size(), std::numeric_limits<double>::infinity());
  for (const auto& body : bodies) body();
  const auto start = Clock::now();
  const double budget = seconds_each * static_cast<double>(bodies.size());
  for (int round = 0; round < 200; ++round) {
    for (size_t i = 0; i < bodies.size(); ++i) {
      const double begin = seconds_now(processor);
      bodies[i]();
      best[i] = std::min(best[i], seconds_now(processor) - begin);
    }
    if (round >= 1 && std::chrono::duration<double>(Clock::now() - start).count() > budget) break;
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
