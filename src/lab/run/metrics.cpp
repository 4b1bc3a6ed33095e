#include "lamina/lab/run/metrics.h"

#include <cmath>

namespace lamina::lab {
namespace {

using Value = std::optional<double>;

Value perplexity(const RunResult& run, Value /*target*/) {
  return run.best_loss ? Value(std::exp(*run.best_loss)) : Value();
}
Value steps_to_target(const RunResult& run, Value target) {
  const std::optional<size_t> at = target ? run.reached(*target) : std::nullopt;
  return at ? Value(run.evaluation_step[*at]) : Value();
}
Value seconds_to_target(const RunResult& run, Value target) {
  const std::optional<size_t> at = target ? run.reached(*target) : std::nullopt;
  return at ? Value(run.evaluation_seconds[*at]) : Value();
}

}  // namespace

const std::vector<MetricInfo>& metrics() {
  static const std::vector<MetricInfo> all = {
      {"best_loss", "best validation loss", false, [](const RunResult& run, Value) { return run.best_loss; }},
      {"final_loss", "final validation loss", false, [](const RunResult& run, Value) { return run.final_loss; }},
      {"perplexity", "best validation perplexity", false, perplexity},
      {"bits_per_byte", "bits per byte", false, [](const RunResult& run, Value) { return run.bits_per_byte; }},
      {"accuracy", "accuracy", true, [](const RunResult& run, Value) { return run.accuracy; }},
      {"accuracy_long", "accuracy at longer lengths", true,
       [](const RunResult& run, Value) { return run.accuracy_long; }},
      {"steps_to_target", "steps to the target", false, steps_to_target},
      {"seconds_to_target", "seconds to the target", false, seconds_to_target},
      {"tokens_per_second", "training tokens per second", true,
       [](const RunResult& run, Value) { return run.tokens_per_second; }},
      {"decode_tokens_per_second", "generated tokens per second", true,
       [](const RunResult& run, Value) { return run.decode_tokens_per_second; }},
      {"peak_memory_bytes", "peak memory", false,
       [](const RunResult& run, Value) {
         return run.peak_memory_bytes > 0 ? Value(static_cast<double>(run.peak_memory_bytes)) : Value();
       }},
      {"spikes", "loss spikes", false,
       [](const RunResult& run, Value) { return Value(static_cast<double>(run.spikes)); }},
      {"gradient_outliers", "gradient-norm outliers", false,
       [](const RunResult& run, Value) { return Value(static_cast<double>(run.gradient_outliers)); }},
  };
  return all;
}

const MetricInfo* find_metric(const std::string& name) {
  for (const MetricInfo& metric : metrics()) {
    if (name == metric.name) return &metric;
  }
  return nullptr;
}

}  // namespace lamina::lab
