#pragma once

#include <functional>
#include <vector>

#include "lamina/infer/engine/engine.h"

namespace lamina::infer {

/// Requests of a load test.
struct LoadTestOptions {
  int64_t requests = 64;
  double rate = 0;       ///< requests per second, arriving as a Poisson process; 0: all at once
  int64_t prompt = 256;  ///< tokens per prompt
  int64_t answer = 256;  ///< tokens per answer
  double spread = 0;     ///< lengths vary uniformly by a factor in [1 − spread, 1 + spread]
  int64_t shared = 0;    ///< length of the beginning that all prompts have in common
  uint64_t seed = 0;
};

/// Latencies in seconds, ascending.
struct Latencies {
  std::vector<double> values;

  double mean() const;
  /// The smallest value that is at least as large as this share of all values. 0 if there are no values.
  double percentile(double share) const;
};

/// Result of run_load_test().
struct LoadTestReport {
  double seconds = 0;         ///< time from the first arrival to the last token
  int64_t prompt_tokens = 0;  ///< total of all prompts, cached or not
  int64_t answer_tokens = 0;
  /// Sum of the sequence length over all computed tokens; gives the bytes of KV cache that must be read.
  double attended_tokens = 0;
  Latencies first_token;  ///< from arrival to the first token (TTFT)
  Latencies next_token;   ///< between consecutive deliveries of an answer (ITL)
  Latencies per_token;    ///< (latency − TTFT) / (tokens − 1) per answer (TPOT)
  EngineStats stats;      ///< counters of this run only
  double answer_tokens_per_second() const { return static_cast<double>(answer_tokens) / seconds; }
};

/// Runs an open-loop load test: requests arrive at their times, whether or not earlier ones are done. `now` is the
/// clock in seconds. `sleep` waits for the given seconds when nothing runs.
LoadTestReport run_load_test(Engine& engine, const LoadTestOptions& options, const std::function<double()>& now,
                             const std::function<void(double)>& sleep);

}  // namespace lamina::infer
