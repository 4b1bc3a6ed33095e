#include "lamina/infer/engine/draft_model.h"

#include <algorithm>

namespace lamina::infer {

DraftModel::DraftModel(std::unique_ptr<StepRunner> runner, int64_t step_tokens)
    : runner_(std::move(runner)), memory_(*runner_, runner_->shape().shares_pages), step_tokens_(step_tokens) {
  for (auto slot = static_cast<int32_t>(shape().rows); slot > 0; --slot) free_slots_.push_back(slot - 1);
}

void DraftModel::forget(int64_t row_id) {
  const auto found = sequences_.find(row_id);
  if (found == sequences_.end()) return;
  memory_.release(found->second.lease);
  free_slots_.push_back(found->second.slot);
  sequences_.erase(found);
}

void DraftModel::clear() {
  while (!sequences_.empty()) forget(sequences_.begin()->first);
  memory_.clear();
}

/// Starts a sequence for an answer. Null if there is no memory for it.
DraftModel::Sequence* DraftModel::admit(const DraftTask& task) {
  if (free_slots_.empty()) return nullptr;
  CacheLease lease;
  const int64_t cached = memory_.attach(lease, task.salt, task.tokens, static_cast<int64_t>(task.tokens.size()) - 1);
  if (cached < 0) return nullptr;
  Sequence& sequence = sequences_[task.row_id];
  sequence.lease = std::move(lease);
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  sequence.sampling = *task.sampling;
  sequence.sampling.top_logprobs = -1;
  sequence.computed = cached;
  return &sequence;
}

/// The sequence of a task, updated to its present tokens. Null if the draft model cannot read them.
DraftModel::Sequence* DraftModel::follow(const DraftTask& task) {
  const auto is_readable = [&](TokenId id) { return id >= 0 && id < shape().vocab_size; };
  if (static_cast<int64_t>(task.tokens.size()) + task.limit - 1 > shape().context) return nullptr;
  const auto found = sequences_.find(task.row_id);
  if (found == sequences_.end()) return std::ranges::all_of(task.tokens, is_readable) ? admit(task) : nullptr;
  roll_back(found->second, task.tokens);
  const auto pending = task.tokens.subspan(static_cast<size_t>(found->second.computed));
  return std::ranges::all_of(pending, is_readable) ? &found->second : nullptr;
}

/// Drops drafted tokens that the answer did not accept.
void DraftModel::roll_back(Sequence& sequence, std::span<const TokenId> tokens) {
  const auto same = std::ranges::mismatch(sequence.tokens, tokens).in1 - sequence.tokens.begin();
  if (same >= sequence.computed) return;
  sequence.computed = memory_.has_states() ? sequence.saved : same;
  memory_.restore_state(sequence.lease);
}

StepRow DraftModel::plan_row(Sequence& sequence, int64_t row_id, int64_t end) const {
  const auto length = static_cast<int64_t>(sequence.tokens.size());
  StepRow row;
  row.row_id = row_id;
  row.slot = sequence.slot;
  row.tokens = std::span<const TokenId>(sequence.tokens)
                   .subspan(static_cast<size_t>(sequence.computed), static_cast<size_t>(end - sequence.computed));
  row.offset = sequence.computed;
  for (const std::vector<int32_t>& table : sequence.lease.tables) row.pages.emplace_back(table);
  row.state_slot = sequence.lease.state;
  row.samples = end == length ? 1 : 0;
  row.sampling = &sequence.sampling;
  row.drawn = length - sequence.sampling.prompt_length;
  row.history = sequence.tokens;
  sequence.computed = end;
  return row;
}

void DraftModel::run(const StepPlan& plan, std::span<DraftTask* const> tasks) {
  if (plan.rows.empty()) return;
  runner_->run(plan);
  const StepResult result = runner_->wait();
  ++steps_;
  for (size_t i = 0; i < tasks.size(); ++i) {
    for (const ScoredToken& token : result.rows[i].sampled) {
      tasks[i]->draft.push_back(token.id);
      sequences_.at(tasks[i]->row_id).tokens.push_back(token.id);
    }
  }
}

/// Computes the answers' tokens that the caches lack, and samples the first token of each draft.
void DraftModel::read_pending(std::span<DraftTask> tasks) {
  StepPlan plan;
  std::vector<DraftTask*> planned;
  int64_t budget = step_tokens_;
  for (DraftTask& task : tasks) {
    if (budget <= 0) break;
    Sequence* sequence = follow(task);
    if (sequence != nullptr) {
      sequence->tokens.assign(task.tokens.begin(), task.tokens.end());
      const auto known = static_cast<int64_t>(task.tokens.size());
      const int64_t end = std::min(known, sequence->computed + budget);
      // Reserve pages for the whole draft at once: reserving frees pages that left a window, but a rollback needs them
      // again.
      if (memory_.reserve(sequence->lease, sequence->computed, end == known ? known + task.limit - 1 : end)) {
        budget -= end - sequence->computed;
        plan.rows.push_back(plan_row(*sequence, task.row_id, end));
        planned.push_back(&task);
        continue;
      }
    }
    task.refused = true;
    forget(task.row_id);
  }
  run(plan, planned);
  for (DraftTask* task : planned) {
    Sequence& sequence = sequences_.at(task->row_id);
    memory_.publish(sequence.lease, task->tokens, sequence.computed, false);
    if (task->draft.empty()) continue;
    sequence.saved = sequence.computed;
    if (memory_.save_state(sequence.lease)) continue;
    task->refused = true;
    task->draft.clear();
    forget(task->row_id);
  }
}

/// Drafts one more token for each task whose draft has begun but is not complete.
void DraftModel::extend(std::span<DraftTask> tasks) {
  for (;;) {
    StepPlan plan;
    std::vector<DraftTask*> planned;
    for (DraftTask& task : tasks) {
      const bool complete = task.draft.empty() || static_cast<int64_t>(task.draft.size()) >= task.limit;
      if (complete) continue;
      Sequence& sequence = sequences_.at(task.row_id);
      plan.rows.push_back(plan_row(sequence, task.row_id, static_cast<int64_t>(sequence.tokens.size())));
      planned.push_back(&task);
    }
    if (planned.empty()) return;
    run(plan, planned);
  }
}

void DraftModel::propose(std::span<DraftTask> tasks) {
  tasks = tasks.first(std::min(tasks.size(), static_cast<size_t>(shape().rows)));
  read_pending(tasks);
  extend(tasks);
}

}  // namespace lamina::infer
