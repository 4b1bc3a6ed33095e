#pragma once

#include <functional>
#include <memory>

#include "lamina/infer/engine/engine_observer.h"
#include "lamina/infer/engine/request.h"
#include "lamina/infer/engine/step.h"

namespace lamina::infer {

/// Limits of an engine, and what it uses.
struct EngineOptions {
  int64_t rows = 256;          ///< maximum number of answers computed at once; also limited by the runner
  int64_t step_tokens = 2048;  ///< maximum number of tokens in a step: decode rows first, then prompt chunks
  int64_t max_waiting = 4096;  ///< answers that may wait; more is QueueFull
  bool prefix_cache = true;    ///< requests with a common prefix compute it once
  /// Maximum number of tokens drafted at once, by prompt lookup or by the draft model. 0: no prompt lookup, and
  /// kDraftModelTokens with a draft model.
  int64_t draft_tokens = 0;
  int64_t draft_rows = 8;  ///< no drafts if more answers than this are running
  int64_t quantum = 512;   ///< tokens per client and round of the fair queue
  /// For stop strings and text. Must outlive the engine.
  const text::Tokenizer* tokenizer = nullptr;
  /// Time in seconds, for deadlines and statistics; default: a steady clock.
  std::function<double()> now = {};
  /// Is told of every step and answer. Must outlive the engine.
  EngineObserver* observer = nullptr;
};

constexpr int64_t kDraftModelTokens = 8;  ///< see EngineOptions::draft_tokens

/// Counters since the start, and the present state.
struct EngineStats {
  int64_t requests = 0;       ///< accepted
  int64_t answers_done = 0;   ///< ended, for whatever reason
  int64_t rejected = 0;       ///< requests refused because the queue was full
  int64_t cancelled = 0;      ///< answers ended with Finish::cancelled
  int64_t expired = 0;        ///< answers ended with Finish::deadline
  int64_t failed = 0;         ///< answers ended with Finish::error
  int64_t waiting = 0;        ///< answers in the queue now
  int64_t running = 0;        ///< answers that hold cache memory now
  int64_t rows = 0;           ///< maximum of running
  int64_t steps = 0;          ///< of the runner
  int64_t prompt_tokens = 0;  ///< computed
  int64_t cached_tokens = 0;  ///< prompt tokens found in the prefix cache
  int64_t answer_tokens = 0;  ///< generated
  int64_t preemptions = 0;    ///< answers whose cache was given up for others
  int64_t drafted = 0;        ///< tokens proposed by speculative decoding
  int64_t accepted = 0;       ///< of these, tokens that were right
  int64_t draft_steps = 0;    ///< of the draft model
  int64_t forced = 0;         ///< tokens inserted without sampling
  int64_t pages = 0;          ///< cache pages of all groups
  int64_t pages_used = 0;     ///< held by running answers
  int64_t pages_cached = 0;   ///< hold prefixes that no running answer uses
  int64_t states_used = 0;    ///< state slots held by running answers
  int64_t states_cached = 0;  ///< state slots that hold snapshots
  int64_t cache_bytes = 0;    ///< of everything: pages of all groups and states
  int64_t evictions = 0;      ///< cached pages and snapshots given up for new ones
  double step_seconds = 0;    ///< during which steps were planned or in flight
  double longest_step = 0;    ///< seconds
  /// Mean over the time of all steps.
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

/// The progress of an answer that holds cache memory. It says nothing about the text or the client.
struct RunningAnswer {
  int32_t row = 0;            ///< in [0, EngineStats::rows), fixed while the answer runs
  int64_t prompt_tokens = 0;  ///< of the prompt, computed or not
  int64_t computed = 0;       ///< tokens of prompt and answer in the cache
  int64_t generated = 0;      ///< answer tokens
  double seconds = 0;         ///< since the first answer token; 0: there is none yet
};

/// Generates answers for many requests at once by continuous batching: each step takes one token of every running
/// answer and fills the rest of the step with prompts. Not thread-safe; EngineThread is. Given a deterministic clock,
/// everything depends only on the order of the calls. docs/explanation/engine.md explains how it works.
class Engine {
 public:
  /// Owns the runners. `draft` runs a smaller model with the same tokenizer, whose tokens the other model verifies; the
  /// answers are the same with and without. Throws Error if the options are out of range.
  explicit Engine(std::unique_ptr<StepRunner> runner, EngineOptions options = {},
                  std::unique_ptr<StepRunner> draft = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Queues a request. Throws Error if it cannot be served, and QueueFull if too many answers wait. `id` 0: the engine
  /// picks one.
  RequestId submit(Request request, Listener listener, RequestId id = 0);
  /// Ends all answers of a request with Finish::cancelled. Unknown and finished requests are ignored.
  void cancel(RequestId id);
  void cancel_all();  ///< cancel() of every request
  /// Runs one step. Returns false if there was nothing to do. Throws Error if the runner failed; every answer that was
  /// running has then ended with Finish::error.
  bool step();
  void run_until_idle();  ///< step() until there is nothing to do

  EngineStats stats() const;                   ///< counters and present state
  std::vector<RunningAnswer> running() const;  ///< the answers of EngineStats::running, by row
  const CacheShape& shape() const;             ///< of the runner
  /// Drops all cached prefixes that no running answer uses.
  void clear_prefix_cache();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lamina::infer
