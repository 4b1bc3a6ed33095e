#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "lamina/infer/engine/engine.h"

namespace lamina::serve {

/// A Prometheus histogram of seconds.
class Histogram {
 public:
  void add(double seconds, int64_t times = 1);
  std::string text(const std::string& name, const std::string& labels) const;

 private:
  static constexpr std::array kBounds{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                      0.25,   0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 60.0};
  std::array<int64_t, kBounds.size() + 1> counts_{};  ///< not cumulative
  double sum_ = 0;
};

/// State and histograms of one model's engine, for /metrics.
struct EngineReport {
  std::string model;
  infer::EngineStats stats;
  Histogram queue, prompt;
};

/// Counters and latencies of a server. Thread-safe.
class Metrics {
 public:
  void count_response(int status);
  void add_first_token(const std::string& model, double seconds);
  /// Records `tokens` tokens that arrived together, `seconds` after the previous ones.
  void add_next_tokens(const std::string& model, double seconds, int64_t tokens);
  void add_request(const std::string& model, double seconds);
  /// All metrics in Prometheus' text format, including the statistics of the engines.
  std::string text(const std::vector<EngineReport>& engines) const;

 private:
  struct Latency {
    Histogram first_token, next_token, request;
  };
  mutable std::mutex mutex_;
  std::map<int, int64_t> responses_;
  std::map<std::string, Latency> latencies_;
};

}  // namespace lamina::serve
