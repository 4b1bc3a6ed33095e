#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lamina/infer/sampler.h"

namespace lamina::infer {

using text::TokenId;

/// Layers whose queries attend to the same range of tokens. They share page tables.
struct CacheGroup {
  int64_t window = 0;  ///< number of tokens that a query attends to, including itself; 0: all
  int64_t pages = 0;   ///< number of pages; pages are numbered from 0
  int64_t bytes_per_page = 0;
};

/// The cache memory of a runner, and the limits of its model.
struct CacheShape {
  std::vector<CacheGroup> groups;  ///< empty for a pure state-space model
  int64_t page_size = 32;          ///< tokens per page
  int64_t state_slots = 0;         ///< slots for the states of state-space layers; 0: the model has none
  int64_t bytes_per_state = 0;
  int64_t vocab_size = 0;
  int64_t context = 0;  ///< maximum number of tokens of a sequence
  int64_t rows = 256;   ///< maximum number of rows in a step
  /// Whether a step may be queued before the previous one has finished (StepRow::previous).
  bool pipelined = false;
  /// Whether sequences may share pages. False if cached keys depend on the sequence's length.
  bool shares_pages = true;
};

/// How to sample a row. Does not change while `StepRow::row_id` stays the same.
struct SamplingState {
  SamplerOptions options;
  /// Random numbers come from seed_of_stream(options.seed, stream). The token at position i of the answer uses the i-th
  /// number, regardless of what else runs.
  uint64_t stream = 0;
  /// Soft-cap of the logits, applied first: softcap * tanh(logit / softcap). 0: none.
  double softcap = 0;
  std::vector<std::pair<TokenId, float>> bias;  ///< added to the logits after the soft-cap and before the penalties
  /// Tokens that are not sampled at the answer's first `min_tokens` positions.
  std::vector<TokenId> end_tokens;
  int64_t min_tokens = 0;
  /// Number of likeliest tokens to report with each sampled token. −1: do not even report its log-probability.
  int64_t top_logprobs = -1;
  int64_t prompt_length = 0;  ///< number of prompt tokens at the start of the history, for the penalties

  bool penalises() const {
    return options.repetition_penalty != 1 || options.presence_penalty != 0 || options.frequency_penalty != 0;
  }
};

/// Placeholder for a token that a step in flight is sampling (StepRow::previous).
constexpr TokenId kUnknownToken = -1;

/// The part of a sequence that one step computes: one token (decoding), 1 + k tokens (speculation), or a chunk of a
/// prompt.
struct StepRow {
  int64_t row_id = 0;  ///< unique per admission of a sequence; never reused
  int32_t slot = 0;    ///< in [0, CacheShape::rows), fixed while row_id lives; for per-row data on the device
  std::span<const TokenId> tokens;
  int64_t offset = 0;  ///< number of the row's tokens in the cache, and the position of tokens[0]
  /// If the previous plan samples tokens[0] (which is then kUnknownToken): the row's index in that plan. Otherwise −1.
  int32_t previous = -1;
  /// Per group: element p is the page of tokens [p · page_size, (p + 1) · page_size). −1: they left the window.
  std::vector<std::span<const int32_t>> pages;
  int32_t state_slot = -1;
  /// Number of samples, one after each of the last `samples` tokens: 0 for a chunk that is not the last, 1, or 1 + k
  /// with k drafted tokens.
  int32_t samples = 0;
  const SamplingState* sampling = nullptr;
  int64_t drawn = 0;  ///< position of the first sampled token in the answer
  /// All tokens before the first sampled one (prompt and answer), for the penalties. A row with penalties is never
  /// planned ahead, so its history is complete.
  std::span<const TokenId> history;
  /// Allowed tokens per sample, [samples, ceil(vocab / 32)]; bit 1 means allowed. Empty: all tokens are allowed.
  std::span<const uint32_t> mask;
  /// Prompt tokens to score: scored[i] is the token after tokens[scored_begin + i].
  std::span<const TokenId> scored;
  int64_t scored_begin = 0;
  int64_t scored_top = 0;  ///< number of likeliest tokens to report with each scored token
};

/// All rows of a step. Their new tokens are concatenated without padding (a ragged batch).
struct StepPlan {
  std::vector<StepRow> rows;

  int64_t tokens() const {
    int64_t sum = 0;
    for (const StepRow& row : rows) sum += static_cast<int64_t>(row.tokens.size());
    return sum;
  }
};

/// A token with its log-probability under the model: log-softmax of the raw logits, before bias, penalties and filters.
struct ScoredToken {
  TokenId id = 0;
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;  ///< the likeliest tokens, if requested
};

/// The sampled and the scored tokens of one row.
struct RowResult {
  std::vector<ScoredToken> sampled;  ///< one per sample (StepRow::samples)
  std::vector<ScoredToken> scored;   ///< one per StepRow::scored
};

/// The results of a step.
struct StepResult {
  std::vector<RowResult> rows;  ///< in the order of the plan
};

/// Runs the steps of one model on one device. All calls come from one thread, and take effect in order. So a page may
/// be freed and given to another row as soon as the step that reads it is queued.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  StepRunner() = default;
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  virtual const CacheShape& shape() const = 0;
  /// Queues a step. Data that the plan points to is read before the call returns. At most two steps may be in flight,
  /// and only one unless shape().pipelined.
  virtual void run(const StepPlan& plan) = 0;
  /// Waits for the oldest step in flight. Throws an Error if the step failed, for example because of a NaN logit.
  virtual StepResult wait() = 0;

  virtual void copy_page(int64_t group, int32_t from, int32_t to) = 0;
  /// Copies or clears state slots; called only if shape().state_slots > 0. A row that starts at offset 0 needs a
  /// cleared slot.
  virtual void copy_state(int32_t from, int32_t to) = 0;
  virtual void clear_state(int32_t slot) = 0;
};

}  // namespace lamina::infer
