#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "lamina/infer/engine/answer.h"
#include "lamina/infer/engine/draft_model.h"
#include "lamina/infer/engine/engine.h"
#include "lamina/infer/engine/fair_queue.h"

namespace lamina::infer {

/// A row of a planned step, and the data that its StepRow points to.
struct PlannedRow {
  std::shared_ptr<Answer> answer;
  int64_t row_id = 0;
  int64_t offset = 0;
  int32_t previous = -1;
  int32_t samples = 0;
  std::vector<TokenId> tokens;
  std::vector<TokenId> draft;  ///< the last tokens of the row, if they are drafted
  std::vector<uint32_t> mask;  ///< allowed tokens, per sample
  std::vector<TokenId> scored;
  int64_t scored_begin = 0;
};

/// A planned step: its rows, and when it was planned.
struct PlannedStep {
  uint64_t number = 0;
  std::vector<PlannedRow> rows;
  double started = 0;

  StepPlan plan() const;
};

/// Decides what each step computes: decode rows first, then prompt chunks, then new answers from the fair queue, within
/// a token budget. Allocates and frees cache memory. If memory is short, it preempts the most recent answer of the
/// lowest priority: that answer waits again, and its tokens are recomputed or found in the prefix cache.
class Scheduler {
 public:
  /// All arguments must outlive this object. `draft_model` null: prompt lookup drafts.
  Scheduler(StepRunner& runner, const EngineOptions& options, DraftModel* draft_model);

  FairQueue& queue() { return queue_; }
  CacheMemory& memory() { return memory_; }
  const FairQueue& queue() const { return queue_; }
  const CacheMemory& memory() const { return memory_; }
  const std::vector<std::shared_ptr<Answer>>& running() const { return running_; }
  int64_t preemptions() const { return preemptions_; }
  int64_t cached_tokens() const { return cached_tokens_; }

  /// Whether the next step can be planned before the results of the last one are known.
  bool can_look_ahead() const;
  /// Plans the next step; empty if nothing can run now. `in_flight`: results of an earlier step are outstanding.
  PlannedStep plan(bool in_flight);
  /// Publishes the pages that a queued step fills. Call it after StepRunner::run.
  void queued(const PlannedStep& step);
  /// Call it with the results of a row with a draft. `right` drafted tokens were accepted; the others are undone.
  void settle_draft(const PlannedRow& row, int64_t right);
  /// Removes a running or waiting answer and frees its memory. With `keep`, its tokens stay in the prefix cache.
  void remove(const std::shared_ptr<Answer>& answer, bool keep);
  /// Answers found by plan() for which the mask allows no token.
  std::vector<std::shared_ptr<Answer>> take_stuck() { return std::exchange(stuck_, {}); }

 private:
  void preempt_for_priority();
  void plan_decodes(PlannedStep& step);
  void plan_chunks(PlannedStep& step);
  void admit(PlannedStep& step);
  bool admit_one(const std::shared_ptr<Answer>& answer);
  bool fits(const Answer& answer) const;
  void plan_chunk(PlannedStep& step, const std::shared_ptr<Answer>& answer);
  int64_t chunk_end(const Answer& answer) const;
  void add_row(PlannedStep& step, const std::shared_ptr<Answer>& answer, int64_t end, std::vector<TokenId> draft);
  void add_scores(PlannedRow& row, const Answer& answer, int64_t end) const;
  bool fill_masks(PlannedRow& row, std::vector<TokenId>& draft) const;
  void propose_drafts();
  int64_t draft_limit(const Answer& answer) const;
  std::vector<TokenId> take_draft(Answer& answer);
  bool drafts(const Answer& answer) const;
  void preempt(std::shared_ptr<Answer> answer);
  void release(Answer& answer, bool keep);

  const CacheShape shape_;
  const EngineOptions& options_;
  DraftModel* draft_model_;
  CacheMemory memory_;
  FairQueue queue_;
  std::vector<std::shared_ptr<Answer>> running_;  ///< by priority, then by order of admission
  std::vector<std::shared_ptr<Answer>> stuck_;
  std::vector<int32_t> free_slots_;
  int64_t budget_ = 0;
  int64_t next_row_id_ = 0;
  uint64_t step_number_ = 0;
  int64_t preemptions_ = 0;
  int64_t cached_tokens_ = 0;  ///< prompt tokens found in the prefix cache
  bool memory_short_ = false;  ///< the last admission failed because memory was short
};

}  // namespace lamina::infer
