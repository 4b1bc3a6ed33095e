#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "lamina/infer/engine/answer.h"
#include "lamina/infer/engine/draft_model.h"
#include "lamina/infer/engine/engine.h"
#include "lamina/infer/engine/fair_queue.h"

namespace lamina::infer {

/// A row of a planned step, with the data that its StepRow points to.
struct PlannedRow {
  std::shared_ptr<Answer> answer;
  int64_t row_id = 0;
  int64_t offset = 0;
  int32_t previous = -1;
  int32_t samples = 0;
  std::vector<TokenId> tokens;
  std::vector<TokenId> draft;  ///< the last tokens, if they are drafted
  std::vector<uint32_t> mask;  ///< per sample
  std::vector<TokenId> scored;
  int64_t scored_begin = 0;
};

struct PlannedStep {
  uint64_t number = 0;
  std::vector<PlannedRow> rows;
  double started = 0;

  StepPlan plan() const;
};

/// Decides what each step computes: decode rows first, then prompt chunks, then new answers from the fair queue, within
/// a budget of tokens. Gives and takes cache memory; if it is short, the most recent answer of the lowest priority is
/// preempted: it waits again, and its tokens are recomputed or found in the prefix cache.
class Scheduler {
 public:
  /// All arguments must outlive this. `draft_model` null: drafts come from prompt lookup.
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
  /// The next step; empty if nothing can run now. `in_flight`: whether results of an earlier step are outstanding.
  PlannedStep plan(bool in_flight);
  /// Publishes what a queued step computes. Call after StepRunner::run.
  void queued(const PlannedStep& step);
  /// After the results of a row with a draft, of which `right` tokens were accepted: undoes the others.
  void settle_draft(const PlannedRow& row, int64_t right);
  /// Takes an answer out of the running ones or the queue and frees its memory. With `keep` its tokens stay cached.
  void remove(const std::shared_ptr<Answer>& answer, bool keep);
  /// Answers whose mask allows no token although the grammar is not complete, found by plan().
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
  bool memory_short_ = false;  ///< the last admission failed for lack of memory
};

}  // namespace lamina::infer
