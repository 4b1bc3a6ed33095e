#include "lamina/lab/run/metrics.h"

#include <algorithm>
#include <cmath>

namespace lamina::lab {
namespace {

using Value = std::optional<double>;

Value perplexity(const RunResult& run, const MetricContext& /*context*/) {
  return run.best_loss ? Value(std::exp(*run.best_loss)) : Value();
}
Value steps_to_target(const RunResult& run, const MetricContext& context) {
  const std::optional<size_t> at = context.target ? run.reached(*context.target) : std::nullopt;
  return at ? Value(run.evaluation_step[*at]) : Value();
}
Value seconds_to_target(const RunResult& run, const MetricContext& context) {
  const std::optional<size_t> at = context.target ? run.reached(*context.target) : std::nullopt;
  return at ? Value(run.evaluation_seconds[*at]) : Value();
}

enum class Which { best, last };
/// The validation loss when `spent` reaches the budget, interpolated between the two nearest evaluations; or the lowest
/// loss up to then. Empty if the budget ends before the first evaluation.
Value loss_within(const RunResult& run, const std::vector<double>& spent, Value budget, Which which) {
  if (!budget || run.diverged || spent.size() != run.evaluation_loss.size()) return {};
  Value best;
  Value last;
  for (size_t i = 0; i < spent.size(); ++i) {
    double loss = run.evaluation_loss[i];
    const bool beyond = spent[i] > *budget;
    if (beyond && (i == 0 || spent[i] <= spent[i - 1])) break;
    if (beyond) {
      const double before = run.evaluation_loss[i - 1];
      loss = before + (loss - before) * (*budget - spent[i - 1]) / (spent[i] - spent[i - 1]);
    }
    last = loss;
    best = std::min(best.value_or(loss), loss);
    if (beyond) break;
  }
  return which == Which::best ? best : last;
}
Value best_within_time(const RunResult& run, const MetricContext& context) {
  return loss_within(run, run.evaluation_seconds, context.seconds, Which::best);
}
Value final_within_time(const RunResult& run, const MetricContext& context) {
  return loss_within(run, run.evaluation_seconds, context.seconds, Which::last);
}
Value best_within_tokens(const RunResult& run, const MetricContext& context) {
  return loss_within(run, run.tokens_at(run.evaluation_step), context.tokens, Which::best);
}
Value final_within_tokens(const RunResult& run, const MetricContext& context) {
  return loss_within(run, run.tokens_at(run.evaluation_step), context.tokens, Which::last);
}

}  // namespace

const std::vector<MetricInfo>& metrics() {
  static const std::vector<MetricInfo> all = {
      {"best_loss", "best validation loss", false,
       [](const RunResult& run, const MetricContext&) { return run.best_loss; }},
      {"final_loss", "final validation loss", false,
       [](const RunResult& run, const MetricContext&) { return run.final_loss; }},
      {"best_step", "step of the best validation loss", false,
       [](const RunResult& run, const MetricContext&) {
         return run.best_loss ? Value(static_cast<double>(run.best_step)) : Value();
       }},
      {"best_loss_equal_time", "best validation loss in equal training time", false, best_within_time},
      {"final_loss_equal_time", "validation loss after equal training time", false, final_within_time},
      {"best_loss_equal_tokens", "best validation loss within equal tokens", false, best_within_tokens},
      {"final_loss_equal_tokens", "validation loss after equal tokens", false, final_within_tokens},
      {"perplexity", "best validation perplexity", false, perplexity},
      {"bits_per_byte", "bits per byte", false,
       [](const RunResult& run, const MetricContext&) { return run.bits_per_byte; }},
      {"accuracy", "accuracy", true, [](const RunResult& run, const MetricContext&) { return run.accuracy; }},
      {"accuracy_long", "accuracy at longer lengths", true,
       [](const RunResult& run, const MetricContext&) { return run.accuracy_long; }},
      {"steps_to_target", "steps to the target", false, steps_to_target},
      {"seconds_to_target", "seconds to the target", false, seconds_to_target},
      {"tokens_per_second", "training tokens per second", true,
       [](const RunResult& run, const MetricContext&) { return run.tokens_per_second; }},
      {"decode_tokens_per_second", "generated tokens per second", true,
       [](const RunResult& run, const MetricContext&) { return run.decode_tokens_per_second; }},
      {"peak_memory_bytes", "peak memory", false,
       [](const RunResult& run, const MetricContext&) {
         return run.peak_memory_bytes > 0 ? Value(static_cast<double>(run.peak_memory_bytes)) : Value();
       }},
      {"spikes", "loss spikes", false,
       [](const RunResult& run, const MetricContext&) { return Value(static_cast<double>(run.spikes)); }},
      {"gradient_outliers", "gradient-norm outliers", false,
       [](const RunResult& run, const MetricContext&) { return Value(static_cast<double>(run.gradient_outliers)); }},
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
