#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lamina/infer/engine/cache_memory.h"

namespace lamina::infer {

/// An answer that needs a draft.
struct DraftTask {
  int64_t row_id = 0;               ///< StepRow::row_id in the target model
  std::span<const TokenId> tokens;  ///< prompt and answer so far
  const SamplingState* sampling = nullptr;
  std::string salt;            ///< sequences with the same salt share cached prefixes
  int64_t limit = 0;           ///< maximum number of tokens to draft
  std::vector<TokenId> draft;  ///< result; empty while the draft model still reads the prompt
  /// Result: the model cannot draft for this answer, because it is too long, has unknown tokens, or memory is short.
  bool refused = false;
};

/// Drafts tokens with a small model (speculative decoding: Leviathan et al. 2023, Chen et al. 2023). Each step drafts
/// one token for all answers together. A token is sampled with the options and the random number that the target model
/// will use at its position. So drafts of sampled answers are right about as often as the two distributions overlap.
///
/// The draft model has its own caches. They follow an answer from its first draft on. Drafted tokens that were wrong
/// are rolled back.
class DraftModel {
 public:
  /// Owns the runner. propose() computes at most about `step_tokens` prompt tokens per call.
  DraftModel(std::unique_ptr<StepRunner> runner, int64_t step_tokens);

  const CacheShape& shape() const { return runner_->shape(); }
  int64_t steps() const { return steps_; }  ///< steps of the runner so far
  /// Fills in the draft of each task.
  void propose(std::span<DraftTask> tasks);
  /// Frees the memory of an answer. Unknown answers are ignored.
  void forget(int64_t row_id);
  /// Drops everything, after a failure.
  void clear();
  const CacheMemory& memory() const { return memory_; }

 private:
  struct Sequence {
    CacheLease lease;
    int32_t slot = -1;
    SamplingState sampling;
    std::vector<TokenId> tokens;  ///< all tokens of the answer, followed by the draft
    int64_t computed = 0;         ///< number of these tokens that are in the cache
    int64_t saved = 0;            ///< number of tokens that the saved state contains
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
