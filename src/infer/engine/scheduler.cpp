#include "lamina/infer/engine/scheduler.h"

#include <algorithm>

namespace lamina::infer {
namespace {

/// Maximum number of tokens in a decode row: the sampled token, and those that a grammar forced.
constexpr int64_t kDecodeTokens = 16;
/// Maximum number of tokens that a row with a draft may have to compute before its next sample. After a wrong draft, a
/// model with states recomputes the accepted tokens; if they are more than this, the next draft waits for a step.
constexpr int64_t kPendingBeforeDraft = 4;

/// Salt for the prefix cache. The answers of a request that opted out of it share their prompt under a salt of their
/// own.
std::string salt_of(const Answer& answer) {
  const Request& request = answer.request();
  return request.prefix_cache ? str("s", request.cache_salt) : str("r", answer.active->id);
}

}  // namespace

StepPlan PlannedStep::plan() const {
  StepPlan plan;
  plan.rows.reserve(rows.size());
  for (const PlannedRow& row : rows) {
    const Answer& answer = *row.answer;
    StepRow& out = plan.rows.emplace_back();
    out.row_id = row.row_id;
    out.slot = answer.slot;
    out.tokens = row.tokens;
    out.offset = row.offset;
    out.previous = row.previous;
    for (const std::vector<int32_t>& table : answer.lease.tables) out.pages.emplace_back(table);
    out.state_slot = answer.lease.state;
    out.samples = row.samples;
    out.sampling = &answer.sampling;
    out.history = answer.tokens;
    out.drawn = row.offset + static_cast<int64_t>(row.tokens.size() - row.draft.size()) - answer.prompt_length;
    out.mask = row.mask;
    out.scored = row.scored;
    out.scored_begin = row.scored_begin;
    out.scored_top = std::max<int64_t>(0, answer.request().prompt_logprobs);
  }
  return plan;
}

Scheduler::Scheduler(StepRunner& runner, const EngineOptions& options, DraftModel* draft_model)
    : shape_(runner.shape()),
      options_(options),
      draft_model_(draft_model),
      memory_(runner, options.prefix_cache),
      queue_(options.quantum) {
  for (auto slot = static_cast<int32_t>(options.rows); slot > 0; --slot) free_slots_.push_back(slot - 1);
}

bool Scheduler::drafts(const Answer& answer) const {
  return answer.draft_length && static_cast<int64_t>(running_.size()) <= options_.draft_rows &&
         answer.draft_length->length() > 0;
}

bool Scheduler::can_look_ahead() const {
  return shape_.pipelined && std::none_of(running_.begin(), running_.end(), [&](const auto& answer) {
           return answer->mask || answer->sampling.penalises() || drafts(*answer);
         });
}

PlannedStep Scheduler::plan(bool in_flight) {
  PlannedStep step;
  step.number = ++step_number_;
  propose_drafts();
  for (;;) {
    budget_ = options_.step_tokens;
    preempt_for_priority();
    plan_decodes(step);
    plan_chunks(step);
    admit(step);
    if (!step.rows.empty() || in_flight || running_.empty() || !stuck_.empty()) return step;
    // Partly computed prompts hold all memory, and none can continue. The most recent one must give up its pages.
    LAMINA_CHECK(running_.size() > 1,
                 "engine: an answer that runs alone finds no page (internal error, please report it)");
    preempt(running_.back());
  }
}

void Scheduler::preempt_for_priority() {
  const std::shared_ptr<Answer> next = queue_.next();
  while (next && !running_.empty() && running_.back()->request().priority < next->request().priority &&
         (memory_short_ || static_cast<int64_t>(running_.size()) >= options_.rows)) {
    memory_short_ = false;
    preempt(running_.back());
  }
}

void Scheduler::plan_decodes(PlannedStep& step) {
  for (size_t i = 0; i < running_.size(); ++i) {
    const std::shared_ptr<Answer> answer = running_[i];
    if (answer->in_prompt() || answer->pending() == 0 || answer->pending() > kDecodeTokens) continue;
    if (answer->unknown > 0 && answer->is_full()) continue;  // its last token is being sampled
    std::vector<TokenId> draft = take_draft(*answer);
    const int64_t end = answer->length();
    while (!memory_.reserve(answer->lease, answer->computed, end + static_cast<int64_t>(draft.size()))) {
      if (!draft.empty()) {
        draft.clear();
        continue;
      }
      preempt(running_.back());
      if (answer->row_id < 0) break;
    }
    if (answer->row_id < 0) continue;
    if (!draft.empty() && !memory_.save_state(answer->lease)) draft.clear();
    add_row(step, answer, end, std::move(draft));
  }
}

void Scheduler::plan_chunks(PlannedStep& step) {
  for (const std::shared_ptr<Answer>& answer : running_) {
    if (budget_ <= 0) return;
    if (answer->in_prompt() || answer->pending() > kDecodeTokens) plan_chunk(step, answer);
  }
}

void Scheduler::plan_chunk(PlannedStep& step, const std::shared_ptr<Answer>& answer) {
  if (answer->pending() == 0 || (answer->unknown > 0 && answer->is_full())) return;
  // First free the pages that left the window: the chunk may need them.
  memory_.reserve(answer->lease, answer->computed, answer->computed);
  const int64_t end = memory_.reservable(answer->lease, answer->computed, chunk_end(*answer));
  if (end > answer->computed && memory_.reserve(answer->lease, answer->computed, end)) add_row(step, answer, end, {});
}

/// Where a chunk ends. For models with states, chunks end at page boundaries, so that a state snapshot fits the prefix
/// tree.
int64_t Scheduler::chunk_end(const Answer& answer) const {
  const int64_t begin = answer.computed;
  int64_t end = std::min(answer.length(), begin + budget_);
  if (!memory_.has_states()) return end;
  const int64_t forks = answer.prompt_length - 1;
  if (begin < answer.lease.shared && answer.lease.shared < end) return answer.lease.shared;
  if (!answer.active->held_back.empty() && begin < forks && forks < end) return forks;
  if (end == answer.length()) return end;
  const int64_t aligned = end / memory_.page_size() * memory_.page_size();
  return aligned > begin ? aligned : end;
}

void Scheduler::admit(PlannedStep& step) {
  while (budget_ > 0 && static_cast<int64_t>(running_.size()) < options_.rows) {
    const std::shared_ptr<Answer> answer = queue_.next();
    if (!answer) return;
    memory_short_ = !admit_one(answer);
    if (memory_short_) return;
    plan_chunk(step, answer);
  }
}

bool Scheduler::admit_one(const std::shared_ptr<Answer>& answer) {
  const Request& request = answer->request();
  int64_t limit = request.prefix_cache || request.n > 1 ? answer->length() - 1 : 0;
  if (answer->scores_prompt()) limit = std::min(limit, request.prompt_logprobs_from - 1);
  const int64_t cached = memory_.attach(answer->lease, salt_of(*answer), answer->tokens, limit);
  if (cached < 0) return false;
  answer->computed = cached;
  if (!running_.empty() && !fits(*answer)) {
    memory_.release(answer->lease);
    answer->computed = 0;
    return false;
  }
  queue_.remove(*answer);
  if (answer->cached_tokens < 0) {
    answer->cached_tokens = cached;
    answer->charged = cached;
    cached_tokens_ += cached;
    answer->admitted = options_.now();
  }
  answer->row_id = next_row_id_++;
  answer->slot = free_slots_.back();
  free_slots_.pop_back();
  const auto at = std::upper_bound(running_.begin(), running_.end(), answer, [](const auto& a, const auto& b) {
    return a->request().priority > b->request().priority;
  });
  running_.insert(at, answer);
  return true;
}

/// Whether the prompt fits in memory, together with the rest of the prompts that were admitted earlier.
bool Scheduler::fits(const Answer& answer) const {
  const int64_t chunk = options_.step_tokens;
  for (size_t group = 0; group < memory_.groups(); ++group) {
    int64_t need = memory_.missing(answer.lease, group, answer.computed, answer.length() + 1, chunk);
    for (const auto& other : running_) {
      need += memory_.missing(other->lease, group, other->computed, other->length() + 1, chunk);
    }
    if (need > memory_.tree().available(group)) return false;
  }
  return true;
}

/// Maximum length of a draft for the next step; 0: no draft.
int64_t Scheduler::draft_limit(const Answer& answer) const {
  const bool decodes = !answer.in_prompt() && answer.pending() > 0 && answer.pending() <= kPendingBeforeDraft;
  if (!drafts(answer) || !decodes || answer.unknown > 0) return 0;
  const int64_t room =
      std::min(answer.request().max_tokens - answer.answered(), answer.active->max_length - answer.length());
  return std::max<int64_t>(0, std::min(room - 1, answer.draft_length->length()));
}

void Scheduler::propose_drafts() {
  std::vector<DraftTask> tasks;
  std::vector<Answer*> answers;
  for (const std::shared_ptr<Answer>& answer : running_) {
    const int64_t limit = draft_limit(*answer);
    if (limit == 0) continue;
    if (answer->lookup) {
      answer->draft = answer->lookup->draft(answer->tokens, limit);
      continue;
    }
    tasks.push_back({answer->row_id, answer->tokens, &answer->sampling, salt_of(*answer), limit, {}});
    answers.push_back(answer.get());
  }
  if (tasks.empty()) return;
  draft_model_->propose(tasks);
  for (size_t i = 0; i < tasks.size(); ++i) {
    // The draft model's vocabulary may be padded and larger than the target's.
    const auto end = std::ranges::find_if(tasks[i].draft, [&](TokenId id) { return id >= shape_.vocab_size; });
    answers[i]->draft.assign(tasks[i].draft.begin(), end);
    if (tasks[i].refused) answers[i]->draft_length.reset();
  }
}

/// The draft of an answer, cut to the step's token budget.
std::vector<TokenId> Scheduler::take_draft(Answer& answer) {
  std::vector<TokenId> draft = std::exchange(answer.draft, {});
  const int64_t others = static_cast<int64_t>(running_.size()) - 1;  // every other row needs one token of the budget
  const int64_t limit = std::max<int64_t>(0, budget_ - answer.pending() - others);
  if (static_cast<int64_t>(draft.size()) > limit) draft.resize(static_cast<size_t>(limit));
  return draft;
}

void Scheduler::settle_draft(const PlannedRow& row, int64_t right) {
  Answer& answer = *row.answer;
  if (answer.draft_length) answer.draft_length->measure(static_cast<int64_t>(row.draft.size()), right);
  if (memory_.has_states() && right < static_cast<int64_t>(row.draft.size())) {
    memory_.restore_state(answer.lease);
    answer.computed = row.offset;
  }
  memory_.drop_saved_state(answer.lease);
}

/// Computes the masks of a row's samples. Cuts the draft where the grammar forbids it. Returns false if no token is
/// allowed.
bool Scheduler::fill_masks(PlannedRow& row, std::vector<TokenId>& draft) const {
  const Answer& answer = *row.answer;
  if (!answer.mask) return true;
  const auto words = static_cast<size_t>((shape_.vocab_size + 31) / 32);
  std::unique_ptr<TokenMask> state = answer.mask->clone();
  for (size_t sample = 0; sample <= draft.size(); ++sample) {
    row.mask.resize((sample + 1) * words);
    const bool any =
        answer.allowed(*state, answer.answered() + static_cast<int64_t>(sample), std::span(row.mask).last(words));
    if (!any && sample == 0) return false;
    // The draft ends where the grammar forces tokens: these are inserted after this sample.
    if (!any || (sample < draft.size() && (!state->accept(draft[sample]) || !state->forced().empty()))) {
      draft.resize(any ? sample : sample - 1);
      row.mask.resize((draft.size() + 1) * words);
      break;
    }
  }
  return true;
}

void Scheduler::add_scores(PlannedRow& row, const Answer& answer, int64_t end) const {
  if (!answer.scores_prompt()) return;
  const int64_t first = std::max(row.offset, answer.request().prompt_logprobs_from - 1);
  const int64_t last = std::min(end, answer.prompt_length - 1);
  if (first >= last) return;
  row.scored_begin = first - row.offset;
  row.scored.assign(answer.tokens.begin() + first + 1, answer.tokens.begin() + last + 1);
}

void Scheduler::add_row(PlannedStep& step, const std::shared_ptr<Answer>& answer, int64_t end,
                        std::vector<TokenId> draft) {
  PlannedRow row;
  row.answer = answer;
  row.row_id = answer->row_id;
  row.offset = answer->computed;
  const bool samples = end == answer->length() && !answer->scores_only();
  if (samples && !fill_masks(row, draft)) {
    stuck_.push_back(answer);
    return;
  }
  if (answer->unknown > 0) {
    row.tokens.assign(1, kUnknownToken);
    row.previous = answer->last_index;
  } else {
    row.tokens.assign(answer->tokens.begin() + answer->computed, answer->tokens.begin() + end);
  }
  add_scores(row, *answer, end);
  row.tokens.insert(row.tokens.end(), draft.begin(), draft.end());
  row.samples = samples ? 1 + static_cast<int32_t>(draft.size()) : 0;
  if (draft.empty()) memory_.drop_saved_state(answer->lease);  // a grammar may have cut the draft to nothing
  row.draft = std::move(draft);
  budget_ -= static_cast<int64_t>(row.tokens.size());
  answer->computed = end;  // drafted tokens count when they are accepted
  if (samples) ++answer->unknown;
  answer->last_index = static_cast<int32_t>(step.rows.size());
  const int64_t served = end + (samples ? 1 : 0);  // including the sampled token
  if (served > answer->charged) {
    queue_.charge(answer->request().client, served - answer->charged);
    answer->charged = served;
  }
  step.rows.push_back(std::move(row));
}

void Scheduler::queued(const PlannedStep& step) {
  for (const PlannedRow& row : step.rows) {
    Answer& answer = *row.answer;
    if (!row.draft.empty()) continue;
    const int64_t known = std::min<int64_t>(answer.computed, static_cast<int64_t>(answer.tokens.size()));
    if (row.offset >= answer.prompt_length) {
      memory_.publish(answer.lease, answer.tokens, known, false);
      continue;
    }
    // At the end of a prompt, publish its last, partly filled page, too: the next turn and other answers continue
    // there.
    memory_.publish(answer.lease, answer.tokens, known, known >= answer.prompt_length);
    // Snapshots are few. If possible, keep the state at the end of the answer rather than at the end of the prompt.
    // With pipelined steps that may not be possible: a step planned ahead may already have changed the state.
    const bool keeps_state = known < answer.prompt_length || shape_.pipelined || !answer.active->held_back.empty();
    if (memory_.has_states() && keeps_state) memory_.snapshot(answer.lease, answer.tokens, known);
    const bool forks = answer.computed >= answer.prompt_length - 1;
    if (!forks) continue;
    for (auto& other : std::exchange(answer.active->held_back, {})) queue_.push_back(std::move(other));
  }
}

void Scheduler::release(Answer& answer, bool keep) {
  if (keep) {
    const int64_t known = std::min<int64_t>(answer.computed, static_cast<int64_t>(answer.tokens.size()));
    memory_.publish(answer.lease, answer.tokens, known, true);
    // If a step in flight has already changed the state, there is nothing to keep.
    if (memory_.has_states() && answer.unknown == 0) memory_.snapshot(answer.lease, answer.tokens, known);
  }
  memory_.release(answer.lease);
  if (draft_model_ != nullptr) draft_model_->forget(answer.row_id);
  answer.draft.clear();
  free_slots_.push_back(answer.slot);
  answer.slot = -1;
  answer.row_id = -1;
  answer.computed = 0;
  answer.unknown = 0;
  if (answer.scores_prompt()) answer.prompt_scores.clear();
}

void Scheduler::preempt(std::shared_ptr<Answer> answer) {
  ++preemptions_;
  std::erase(running_, answer);
  release(*answer, true);
  queue_.push_front(std::move(answer));
}

void Scheduler::remove(const std::shared_ptr<Answer>& answer, bool keep) {
  if (answer->row_id < 0) {
    queue_.remove(*answer);
    return;
  }
  std::erase(running_, answer);
  release(*answer, keep);
}

}  // namespace lamina::infer
