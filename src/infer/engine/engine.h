#pragma once

#include <functional>
#include <memory>

#include "lamina/infer/engine/engine_observer.h"
#include "lamina/infer/engine/request.h"
#include "lamina/infer/engine/step.h"

namespace lamina::infer {

/// Limits and features of an engine.
struct EngineOptions {
  int64_t rows = 256;          ///< maximum number of answers computed at once; the runner may limit it further
  int64_t step_tokens = 2048;  ///< maximum number of tokens in a step: decode rows first, then prompt chunks
  int64_t max_waiting = 4096;  ///< maximum number of waiting answers; above it, submit() throws QueueFull
  bool prefix_cache = true;    ///< compute a common prefix of several requests only once
  /// Maximum number of tokens drafted at once, by the draft model if there is one, otherwise by prompt lookup. 0: no
  /// prompt lookup; kDraftModelTokens with a draft model.
  int64_t draft_tokens = 0;
  int64_t draft_rows = 8;  ///< speculative decoding stops while more answers than this are running
  int64_t quantum = 512;   ///< tokens per client in a round of the fair queue
  /// Needed for stop strings and text. Must outlive the engine.
  const text::Tokenizer* tokenizer = nullptr;
  /// Clock in seconds, for deadlines and statistics. Default: a steady clock.
  std::function<double()> now = {};
  /// Called for every step and answer. Must outlive the engine.
  EngineObserver* observer = nullptr;
};

constexpr int64_t kDraftModelTokens = 8;  ///< see EngineOptions::draft_tokens

/// Counters since the start, and the current state.
struct EngineStats {
  int64_t requests = 0;       ///< accepted requests
  int64_t answers_done = 0;   ///< answers that ended, for any reason
  int64_t rejected = 0;       ///< requests refused because the queue was full
  int64_t cancelled = 0;      ///< answers ended with Finish::cancelled
  int64_t expired = 0;        ///< answers ended with Finish::deadline
  int64_t failed = 0;         ///< answers ended with Finish::error
  int64_t waiting = 0;        ///< answers in the queue now
  int64_t running = 0;        ///< answers that hold cache memory now
  int64_t rows = 0;           ///< maximum of running
  int64_t steps = 0;          ///< steps of the runner
  int64_t prompt_tokens = 0;  ///< computed prompt tokens
  int64_t cached_tokens = 0;  ///< prompt tokens found in the prefix cache
  int64_t answer_tokens = 0;  ///< generated tokens
  int64_t preemptions = 0;    ///< answers that gave up their cache for others
  int64_t drafted = 0;        ///< tokens proposed by speculative decoding
  int64_t accepted = 0;       ///< drafted tokens that were right
  int64_t draft_steps = 0;    ///< steps of the draft model
  int64_t forced = 0;         ///< tokens that a grammar forced, inserted without sampling
  int64_t pages = 0;          ///< cache pages of all groups
  int64_t pages_used = 0;     ///< pages held by running answers
  int64_t pages_cached = 0;   ///< pages with prefixes that no running answer uses
  int64_t states_used = 0;    ///< state slots held by running answers
  int64_t states_cached = 0;  ///< state slots that hold snapshots
  int64_t cache_bytes = 0;    ///< memory of all pages and states
  int64_t evictions = 0;      ///< cached pages and snapshots dropped to make room
  double step_seconds = 0;    ///< total time with a step planned or in flight
  double longest_step = 0;    ///< in seconds
  /// Mean throughput over step_seconds.
  double answer_tokens_per_second() const {
    return step_seconds > 0 ? static_cast<double>(answer_tokens) / step_seconds : 0;
  }
  /// Share of drafted tokens that were right.
  double acceptance() const { return drafted > 0 ? static_cast<double>(accepted) / static_cast<double>(drafted) : 0; }
  /// Share of prompt tokens found in the prefix cache.
  double hit_rate() const {
    const int64_t all = prompt_tokens + cached_tokens;
    return all > 0 ? static_cast<double>(cached_tokens) / static_cast<double>(all) : 0;
  }
};

/// Progress of an answer that holds cache memory. Reveals nothing about the text or the client.
struct RunningAnswer {
  int32_t row = 0;            ///< index in [0, EngineStats::rows); does not change while the answer runs
  int64_t prompt_tokens = 0;  ///< length of the prompt, whether computed or not
  int64_t computed = 0;       ///< prompt and answer tokens in the cache
  int64_t generated = 0;      ///< answer tokens
  double seconds = 0;         ///< time since the first answer token; 0: there is none yet
};

/// Generates answers for many requests at once by continuous batching: each step takes one token of every running
/// answer and fills the rest of the step with prompts. Not thread-safe; see EngineThread. With a deterministic clock,
/// everything depends only on the order of the calls. docs/explanation/engine.md explains how it works.
class Engine {
 public:
  /// Owns the runners. `draft` runs a smaller model with the same tokenizer; the main model verifies its tokens, so the
  /// answers do not change. Throws an Error if the options are out of range.
  explicit Engine(std::unique_ptr<StepRunner> runner, EngineOptions options = {},
                  std::unique_ptr<StepRunner> draft = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Queues a request. Throws an Error if it cannot be served, and QueueFull if too many answers wait. `id` 0: the
  /// engine chooses one.
  RequestId submit(Request request, Listener listener, RequestId id = 0);
  /// Ends all answers of a request with Finish::cancelled. Unknown and finished requests are ignored.
  void cancel(RequestId id);
  void cancel_all();  ///< cancel() of every request
  /// Runs one step. Returns false if there was nothing to do. If the runner fails, every running answer ends with
  /// Finish::error, and an Error is thrown.
  bool step();
  void run_until_idle();  ///< step() until there is nothing to do

  EngineStats stats() const;                   ///< counters and current state
  std::vector<RunningAnswer> running() const;  ///< the answers that EngineStats::running counts, by row
  const CacheShape& shape() const;             ///< cache shape of the runner
  /// Drops all cached prefixes that no running answer uses.
  void clear_prefix_cache();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lamina::infer
