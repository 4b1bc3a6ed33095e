#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lamina/infer/engine/cache_memory.h"

namespace lamina::infer {

/// An answer that wants a draft.
struct DraftTask {
  int64_t row_id = 0;               ///< as StepRow::row_id of the target model
  std::span<const TokenId> tokens;  ///< prompt and answer so far
  const SamplingState* sampling = nullptr;
  std::string salt;            ///< sequences with the same salt share cached prefixes
  int64_t limit = 0;           ///< maximum number of tokens to draft
  std::vector<TokenId> draft;  ///< result; empty while the prompt is being read
  /// Result: the model cannot draft for this answer. It is too long, has other tokens, or memory is short.
  bool refused = false;
};

/// Drafts tokens with a small model (Leviathan et al. 2023, Chen et al. 2023). Answers are drafted for together, one
/// token of each per step. A drafted token is sampled with the options and the random draw that the target model will
/// use at its position, so that drafts of sampled answers are right about as often as the two distributions overlap.
///
/// The model has caches of its own. They follow an answer from its first draft on and are rolled back over drafted
/// tokens that were wrong.
class DraftModel {
 public:
  /// Owns the runner. A call of propose() computes at most about `step_tokens` tokens of prompts.
  DraftModel(std::unique_ptr<StepRunner> runner, int64_t step_tokens);

  const CacheShape& shape() const { return runner_->shape(); }
  int64_t steps() const { return steps_; }  ///< of the runner
  /// Fills in the drafts.
  void propose(std::span<DraftTask> tasks);
  /// Frees the memory of an answer; unknown ones are ignored.
  void forget(int64_t row_id);
  /// Drops everything after a failure.
  void clear();
  const CacheMemory& memory() const { return memory_; }

 private:
  struct Sequence {
    CacheLease lease;
    int32_t slot = -1;
    SamplingState sampling;
    std::vector<TokenId> tokens;  ///< all tokens of the answer, then those of the draft
    int64_t computed = 0;         ///< of these, tokens in the cache
    int64_t saved = 0;            ///< tokens that the saved state has seen
  };

  Sequence* follow(const DraftTask& task);
  Sequence* admit(const DraftTask& task);
  void roll_back(Sequence& sequence, std::span<const TokenId> tokens);
  void read_pending(std::span<DraftTask> tasks);
  void extend(std::span<DraftTask> tasks);
  StepRow plan_row(Sequence& sequence, int64_t row_id, int64_t end) const;
  /// Runs a step and appends the sampled tokens to the drafts of `tasks`.
  void run(const StepPlan& plan, std::span<DraftTask* const> tasks);

  std::unique_ptr<StepRunner> runner_;
  CacheMemory memory_;
  int64_t step_tokens_;
  std::map<int64_t, Sequence> sequences_;  ///< by row_id
  std::vector<int32_t> free_slots_;
  int64_t steps_ = 0;
};

}  // namespace lamina::infer
