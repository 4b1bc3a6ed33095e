#pragma once

#include <functional>
#include <memory>

#include "lamina/infer/engine/request.h"
#include "lamina/infer/engine/step.h"

namespace lamina::infer {

struct EngineOptions {
  int64_t rows = 256;          ///< maximum number of answers computed at once; also limited by the runner
  int64_t step_tokens = 2048;  ///< maximum number of tokens in a step: decode rows first, then prompt chunks
  int64_t max_waiting = 4096;  ///< answers that may wait; more is QueueFull
  bool prefix_cache = true;
  int64_t draft_tokens = 0;  ///< maximum number of tokens drafted by prompt lookup; 0: no speculation
  int64_t draft_rows = 8;    ///< no drafts if more answers than this are running
  int64_t quantum = 512;     ///< tokens per client and round of the fair queue
  /// For stop strings and text. Must outlive the engine.
  const text::Tokenizer* tokenizer = nullptr;
  /// Time in seconds, for deadlines and statistics; default: a steady clock.
  std::function<double()> now = {};
};

/// Counters since the start, and the present state.
struct EngineStats {
  int64_t requests = 0, answers_done = 0, rejected = 0, cancelled = 0, expired = 0, failed = 0;
  int64_t waiting = 0, running = 0;
  int64_t steps = 0;
  int64_t prompt_tokens = 0;  ///< computed
  int64_t cached_tokens = 0;  ///< prompt tokens found in the prefix cache
  int64_t answer_tokens = 0;
  int64_t preemptions = 0;
  int64_t drafted = 0, accepted = 0;                    ///< tokens of speculative decoding
  int64_t forced = 0;                                   ///< tokens inserted without sampling
  int64_t pages = 0, pages_used = 0, pages_cached = 0;  ///< used: held by running answers; cached: reusable prefixes
  int64_t states_used = 0, states_cached = 0;
  int64_t cache_bytes = 0;  ///< of everything: pages of all groups and states
  int64_t evictions = 0;
  double step_seconds = 0;  ///< during which steps were planned or in flight
  double longest_step = 0;
  double answer_tokens_per_second() const {
    return step_seconds > 0 ? static_cast<double>(answer_tokens) / step_seconds : 0;
  }
  double hit_rate() const {
    const int64_t all = prompt_tokens + cached_tokens;
    return all > 0 ? static_cast<double>(cached_tokens) / static_cast<double>(all) : 0;
  }
};

/// Generates answers for many requests at once by continuous batching: each step takes one token of every running
/// answer and fills the rest of the step with prompts. Not thread-safe; EngineThread is. Given a deterministic clock,
/// everything depends only on the order of the calls. docs/explanation/engine.md explains how it works.
class Engine {
 public:
  explicit Engine(std::unique_ptr<StepRunner> runner, EngineOptions options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Queues a request. Throws Error if it cannot be served, and QueueFull if too many answers wait. `id` 0: the engine
  /// picks one.
  RequestId submit(Request request, Listener listener, RequestId id = 0);
  /// Ends all answers of a request with Finish::cancelled. Unknown and finished requests are ignored.
  void cancel(RequestId id);
  void cancel_all();
  /// Runs one step. Returns false if there was nothing to do. Throws Error if the runner failed; every answer that was
  /// running has then ended with Finish::error.
  bool step();
  void run_until_idle();

  EngineStats stats() const;
  const CacheShape& shape() const;
  /// Drops all cached prefixes that no running answer uses.
  void clear_prefix_cache();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lamina::infer
