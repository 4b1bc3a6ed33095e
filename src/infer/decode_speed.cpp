#include "lamina/infer/decode_speed.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "lamina/infer/runner/model_runner.h"

namespace lamina::infer {
namespace {

using Clock = std::chrono::steady_clock;

/// Steps before the timed ones, at the same positions. CUDA graph capture happens in them.
constexpr int64_t kUntimedSteps = 4;
constexpr int64_t kFillTokens = 4096;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Sequences of equal length with separate pages, run without an engine.
class EqualRows {
 public:
  EqualRows(nn::Model& model, int64_t rows, int64_t length, std::optional<DType> cache_dtype)
      : length_(length), runner_(model, options_of(rows, length, cache_dtype)) {
    const CacheShape& shape = runner_.shape();
    const int64_t pages = (length + shape.page_size - 1) / shape.page_size;
    for (const CacheGroup& group : shape.groups) {
      LAMINA_CHECK(group.pages >= rows * pages, "bench: caches of ", rows, " sequences of ", length,
                   " tokens do not fit the memory; use fewer rows, a shorter context or --cache q8");
    }
    for (int64_t i = 0; i < length; ++i) ids_.push_back(static_cast<TokenId>((i * 7919 + 13) % shape.vocab_size));
    sampling_.options.temperature = 0;
    for (int64_t row = 0; row < rows; ++row) {
      tables_.emplace_back(static_cast<size_t>(pages));
      std::iota(tables_.back().begin(), tables_.back().end(), static_cast<int32_t>(row * pages));
    }
  }

  ModelRunner& runner() { return runner_; }
  int64_t rows() const { return static_cast<int64_t>(tables_.size()); }

  /// Reads the first `length` tokens of every row in steps of at most `step_tokens`.
  void read_prompts(int64_t length, int64_t step_tokens) {
    if (runner_.shape().state_slots > 0) {
      for (int64_t row = 0; row < rows(); ++row) runner_.clear_state(static_cast<int32_t>(row));
    }
    StepPlan plan;
    int64_t used = 0;
    const auto flush = [&] {
      if (plan.rows.empty()) return;
      runner_.run(plan);
      runner_.wait();
      plan.rows.clear();
      used = 0;
    };
    for (int64_t row = 0; row < rows(); ++row) {
      for (int64_t at = 0; at < length;) {
        const int64_t count = std::min(length - at, step_tokens - used);
        plan.rows.push_back(row_of(row, at, count));
        plan.rows.back().samples = at + count == length ? 1 : 0;
        at += count;
        used += count;
        if (used == step_tokens) flush();
      }
    }
    flush();
  }

  /// Decodes `steps` tokens of every row, from position `offset` on. On a GPU, each step is queued before the tokens of
  /// the previous one are read.
  void decode(int64_t offset, int64_t steps) {
    int64_t in_flight = 0;
    const int64_t most = runner_.shape().pipelined ? 2 : 1;
    for (int64_t step = 0; step < steps; ++step) {
      StepPlan plan;
      for (int64_t row = 0; row < rows(); ++row) {
        plan.rows.push_back(row_of(row, offset + step, 1));
        plan.rows.back().samples = 1;
        plan.rows.back().drawn = step;
        if (step > 0 && most > 1) {
          plan.rows.back().previous = static_cast<int32_t>(row);
          plan.rows.back().tokens = std::span(&kUnknownToken, 1);
        }
      }
      runner_.run(plan);
      if (++in_flight == most) {
        runner_.wait();
        --in_flight;
      }
    }
    for (; in_flight > 0; --in_flight) runner_.wait();
  }

 private:
  static ModelRunnerOptions options_of(int64_t rows, int64_t length, std::optional<DType> cache_dtype) {
    ModelRunnerOptions options{.rows = rows, .context = length};
    options.cache_dtype = cache_dtype;
    return options;
  }

  StepRow row_of(int64_t row, int64_t offset, int64_t count) const {
    StepRow planned;
    planned.row_id = row;
    planned.slot = static_cast<int32_t>(row);
    planned.tokens = std::span(ids_).subspan(static_cast<size_t>(offset), static_cast<size_t>(count));
    planned.offset = offset;
    planned.history = std::span(ids_).first(static_cast<size_t>(offset + count));
    planned.pages.assign(runner_.shape().groups.size(), tables_[static_cast<size_t>(row)]);
    planned.state_slot = runner_.shape().state_slots > 0 ? static_cast<int32_t>(row) : -1;
    planned.sampling = &sampling_;
    return planned;
  }

  int64_t length_;
  ModelRunner runner_;
  SamplingState sampling_;
  std::vector<TokenId> ids_;
  std::vector<std::vector<int32_t>> tables_;  ///< page table per row, the same in every group
};

}  // namespace

DecodeSpeed measure_decode(nn::Model& model, const DecodeSpeedOptions& options) {
  LAMINA_CHECK(options.batch > 0 && options.context > 0 && options.tokens > 0 && options.rounds > 0,
               "measure_decode: ", options.batch, " rows after ", options.context, " tokens, ", options.tokens,
               " steps, ", options.rounds, " rounds; expected positive numbers");
  EqualRows rows(model, options.batch, options.context + options.tokens, options.cache_dtype);
  rows.read_prompts(options.context, kFillTokens);
  DecodeSpeed speed{.seconds_per_step = 1e30};
  rows.runner().use_graphs(false);  // in a captured step, operators report the work of full caches
  model.device().reset_work();
  rows.decode(options.context, 1);
  speed.bytes_per_step = static_cast<double>(model.device().work().bytes);
  rows.runner().use_graphs(true);
  for (int round = 0; round <= options.rounds; ++round) {
    rows.decode(options.context, std::min(kUntimedSteps, options.tokens));
    const auto start = Clock::now();
    rows.decode(options.context, options.tokens);
    if (round == 0) continue;
    speed.seconds_per_step =
        std::min(speed.seconds_per_step, seconds_since(start) / static_cast<double>(options.tokens));
  }
  speed.tokens_per_second = static_cast<double>(options.batch) / speed.seconds_per_step;
  return speed;
}

PrefillSpeed measure_prefill(nn::Model& model, const PrefillSpeedOptions& options) {
  LAMINA_CHECK(options.prompts > 0 && options.length > 0 && options.step_tokens > 0 && options.rounds > 0,
               "measure_prefill: ", options.prompts, " prompts of ", options.length, " tokens in steps of ",
               options.step_tokens, ", ", options.rounds, " rounds; expected positive numbers");
  EqualRows rows(model, options.prompts, options.length, options.cache_dtype);
  PrefillSpeed speed;
  const auto tokens = static_cast<double>(options.prompts * options.length);
  for (int round = 0; round <= options.rounds; ++round) {
    model.device().reset_work();
    const auto start = Clock::now();
    rows.read_prompts(options.length, options.step_tokens);
    if (round > 0) speed.tokens_per_second = std::max(speed.tokens_per_second, tokens / seconds_since(start));
    speed.flops_per_token = static_cast<double>(model.device().work().flops) / tokens;
  }
  return speed;
}

}  // namespace lamina::infer
