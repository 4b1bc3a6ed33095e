#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lamina/infer/sampler.h"

namespace lamina::infer {

using text::TokenId;

/// Layers whose queries see the same range of tokens. They share page tables.
struct CacheGroup {
  int64_t window = 0;  ///< number of tokens a query sees, itself included; 0: all
  int64_t pages = 0;   ///< pages in memory, numbered from 0
  int64_t bytes_per_page = 0;
};

/// The cache memory of a runner and the limits of its model.
struct CacheShape {
  std::vector<CacheGroup> groups;  ///< empty for a pure state-space model
  int64_t page_size = 32;          ///< tokens per page
  int64_t state_slots = 0;         ///< slots for the states of state-space layers; 0: the model has none
  int64_t bytes_per_state = 0;
  int64_t vocab_size = 0;
  int64_t context = 0;  ///< maximum number of tokens of a sequence
  int64_t rows = 256;   ///< maximum number of rows in a step
  /// Whether a step may be queued before the previous one was waited for (StepRow::previous).
  bool pipelined = false;
  /// Whether sequences may share pages. False if cached keys depend on the sequence's length.
  bool shares_pages = true;
};

/// How a row is sampled. Constant while `StepRow::row_id` stays the same.
struct SamplingState {
  SamplerOptions options;
  /// Random numbers come from seed_of_stream(options.seed, stream). The token at position i of the answer uses number
  /// i, whatever else runs.
  uint64_t stream = 0;
  /// Caps the logits first: softcap * tanh(logit / softcap); 0: no cap.
  double softcap = 0;
  std::vector<std::pair<TokenId, float>> bias;  ///< added to the logits, after the soft-cap and before the penalties
  /// Tokens that are not sampled at the answer's first `min_tokens` positions.
  std::vector<TokenId> end_tokens;
  int64_t min_tokens = 0;
  /// Number of likeliest tokens to report with each sampled token; −1: not even its log-probability.
  int64_t top_logprobs = -1;
  int64_t prompt_length = 0;  ///< tokens of the history that are the prompt, for the penalties

  bool penalises() const {
    return options.repetition_penalty != 1 || options.presence_penalty != 0 || options.frequency_penalty != 0;
  }
};

/// Stands for a token that is sampled by a step in flight (StepRow::previous).
constexpr TokenId kUnknownToken = -1;

/// The part of a sequence that one step computes. A row has one token (decode), 1 + k (speculation) or a chunk.
struct StepRow {
  int64_t row_id = 0;  ///< unique per admission of a sequence; never reused
  int32_t slot = 0;    ///< in [0, CacheShape::rows): fixed while row_id lives, for data that stays on the device
  std::span<const TokenId> tokens;
  int64_t offset = 0;  ///< tokens of the row that are in the cache already; position of tokens[0]
  /// Index of this row in the previous plan if tokens[0] is the token sampled there (kUnknownToken here); else −1.
  int32_t previous = -1;
  /// Per group: the page of tokens [p · page_size, (p + 1) · page_size) at index p; −1: left the window.
  std::vector<std::span<const int32_t>> pages;
  int32_t state_slot = -1;
  /// Sample after each of the last `samples` tokens: 0 (a chunk that is not the last), 1, or 1 + k with k drafted
  /// tokens.
  int32_t samples = 0;
  const SamplingState* sampling = nullptr;
  int64_t drawn = 0;  ///< position in the answer of the first sampled token
  /// All tokens before the first sampled one (prompt and answer), for the penalties. Rows with penalties are never
  /// planned ahead, so it is complete if sampling->penalises().
  std::span<const TokenId> history;
  /// Allowed tokens of each sample, [samples, ceil(vocab / 32)], bit 1 = allowed; empty: all.
  std::span<const uint32_t> mask;
  /// Prompt tokens to score: scored[i] is what follows tokens[scored_begin + i].
  std::span<const TokenId> scored;
  int64_t scored_begin = 0;
  int64_t scored_top = 0;  ///< likeliest tokens to report with each scored token
};

/// All rows of a step. Its new tokens are concatenated without padding (a ragged batch).
struct StepPlan {
  std::vector<StepRow> rows;

  int64_t tokens() const {
    int64_t sum = 0;
    for (const StepRow& row : rows) sum += static_cast<int64_t>(row.tokens.size());
    return sum;
  }
};

/// A token with its log-probability under the model: softmax of the raw logits, before bias, penalties and filters.
struct ScoredToken {
  TokenId id = 0;
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;  ///< the likeliest tokens, if asked for
};

struct RowResult {
  std::vector<ScoredToken> sampled;  ///< StepRow::samples of them
  std::vector<ScoredToken> scored;   ///< one per StepRow::scored
};

struct StepResult {
  std::vector<RowResult> rows;  ///< in the order of the plan
};

/// Runs steps of one model on one device. All calls come from one thread. They take effect in the order of the calls,
/// so a page may be freed and given to another row as soon as the step that read it is queued.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  StepRunner() = default;
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  virtual const CacheShape& shape() const = 0;
  /// Queues a step. Everything the plan points to is read before the call returns. At most two steps are in flight, and
  /// only one unless shape().pipelined.
  virtual void run(const StepPlan& plan) = 0;
  /// Waits for the oldest step in flight. Throws Error if it failed, for example for a NaN among the logits.
  virtual StepResult wait() = 0;

  virtual void copy_page(int64_t group, int32_t from, int32_t to) = 0;
  /// State slots; called only if shape().state_slots > 0. A row that starts at offset 0 begins with a cleared slot.
  virtual void copy_state(int32_t from, int32_t to) = 0;
  virtual void clear_state(int32_t slot) = 0;
};

}  // namespace lamina::infer
