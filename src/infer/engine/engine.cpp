#include "lamina/infer/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <set>
#include <unordered_map>

#include "lamina/infer/engine/check_request.h"
#include "lamina/infer/engine/scheduler.h"

namespace lamina::infer {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

EngineOptions checked(EngineOptions options, const CacheShape& shape, const DraftModel* draft) {
  LAMINA_CHECK(options.rows > 0 && options.step_tokens > 0 && options.max_waiting > 0 && options.quantum > 0,
               "engine: rows ", options.rows, ", step_tokens ", options.step_tokens, ", max_waiting ",
               options.max_waiting, ", quantum ", options.quantum, "; expected positive numbers");
  options.rows = std::min({options.rows, shape.rows, options.step_tokens});
  for (const CacheGroup& group : shape.groups) {
    const int64_t whole = (shape.context + shape.page_size - 1) / shape.page_size;
    const int64_t least = group.window > 0 ? std::min(whole, group.window / shape.page_size + 2) : 1;
    LAMINA_CHECK(group.pages >= least, "engine: a cache of ", group.pages, " pages for layers with a window of ",
                 group.window, " tokens; expected at least ", least, " pages: raise the memory limit");
  }
  if (shape.state_slots > 0) options.rows = std::min(options.rows, shape.state_slots);
  options.prefix_cache = options.prefix_cache && shape.shares_pages;
  if (!options.now) options.now = steady_seconds;
  if (draft != nullptr) {
    if (options.draft_tokens == 0) options.draft_tokens = kDraftModelTokens;
    options.draft_rows = std::min(options.draft_rows, draft->shape().rows);
  }
  return options;
}

}  // namespace

struct Engine::Impl {
  Impl(std::unique_ptr<StepRunner> given, EngineOptions wanted, std::unique_ptr<StepRunner> draft)
      : runner(std::move(given)),
        draft_model(draft ? std::make_unique<DraftModel>(std::move(draft), wanted.step_tokens) : nullptr),
        options(checked(std::move(wanted), runner->shape(), draft_model.get())),
        scheduler(*runner, options, draft_model.get()) {}
  ~Impl() {  // breaks the cycle of references between a request and its answers
    for (auto& [id, active] : requests) {
      active->answers.clear();
      active->held_back.clear();
    }
  }

  RequestId submit(Request request, Listener listener, RequestId id);
  void cancel(RequestId id, Finish finish);
  void process_cancels();
  bool step();
  void finish_stuck();
  void wait();
  void apply(const PlannedStep& step, const StepResult& result);
  void apply_row(const PlannedRow& row, const RowResult& result);
  std::optional<Finish> accept_sampled(const PlannedRow& row, const RowResult& result, Update& update);
  std::optional<Finish> accept_forced(Answer& answer, Update& update);
  Update update_for(const Answer& answer) const;
  void end(const std::shared_ptr<Answer>& answer, Finish finish, Update update, bool keep);
  void report(const Answer& answer, int32_t row, Finish finish) const;
  void report(const PlannedStep& step, double seconds) const;
  void fail(const std::string& message);
  EngineStats snapshot() const;
  std::vector<RunningAnswer> running() const;

  std::unique_ptr<StepRunner> runner;
  std::unique_ptr<DraftModel> draft_model;  ///< null: no draft model
  const EngineOptions options;
  Scheduler scheduler;
  std::unordered_map<RequestId, std::shared_ptr<ActiveRequest>> requests;
  std::set<std::pair<double, RequestId>> deadlines;
  std::vector<RequestId> cancels;
  std::deque<PlannedStep> in_flight;
  RequestId next_id = 1;
  double last_done = 0;  ///< time when the results of the last step arrived
  EngineStats counts;
};

RequestId Engine::Impl::submit(Request request, Listener listener, RequestId id) {
  const CacheShape& shape = runner->shape();
  const int64_t max_length = check_request(request, shape, options);
  if (scheduler.queue().size() + request.n > options.max_waiting) {
    ++counts.rejected;
    throw QueueFull(str("engine: ", scheduler.queue().size(), " answers wait and ", request.n,
                        " more were submitted; at most ", options.max_waiting, " may wait: try again later"));
  }
  auto active = std::make_shared<ActiveRequest>();
  active->id = id > 0 ? id : next_id;
  next_id = std::max(next_id, active->id) + 1;
  active->request = std::move(request);
  active->listener = std::move(listener);
  active->max_length = max_length;
  const Request& r = active->request;
  if (r.timeout) {
    active->deadline = options.now() + *r.timeout;
    deadlines.emplace(*active->deadline, active->id);
  }
  for (int64_t i = 0; i < r.n; ++i) {
    auto answer = std::make_shared<Answer>(active, i, options.tokenizer);
    answer->submitted = options.now();
    const bool speculates = options.draft_tokens > 0 && r.speculate;
    if (speculates && !answer->sampling.penalises()) {
      answer->draft_length.emplace(options.draft_tokens);
      if (!draft_model) answer->lookup.emplace().append(answer->tokens);
    }
    active->answers.push_back(answer);
    if (i > 0 && options.prefix_cache) {
      active->held_back.push_back(std::move(answer));
    } else {
      scheduler.queue().push_back(std::move(answer));
    }
  }
  requests.emplace(active->id, active);
  ++counts.requests;
  return active->id;
}

Update Engine::Impl::update_for(const Answer& answer) const {
  Update update;
  update.request = answer.active->id;
  update.answer = answer.index;
  return update;
}

/// Ends an answer and delivers its last update. With `keep`, its computed tokens stay in the prefix cache.
void Engine::Impl::end(const std::shared_ptr<Answer>& answer, Finish finish, Update update, bool keep) {
  answer->ended = true;
  const int32_t row = answer->slot;
  scheduler.remove(answer, keep && answer->request().prefix_cache);
  const std::shared_ptr<ActiveRequest> active = answer->active;
  std::erase(active->answers, answer);
  std::erase(active->held_back, answer);
  if (answer->index == 0) {
    for (auto& other : std::exchange(active->held_back, {})) scheduler.queue().push_back(std::move(other));
  }
  answer->finish_text(update);
  update.finish = finish;
  update.cached_tokens = std::max<int64_t>(0, answer->cached_tokens);
  update.request_done = active->answers.empty();
  if (update.request_done) {
    requests.erase(active->id);
    if (active->deadline) deadlines.erase({*active->deadline, active->id});
  }
  switch (finish) {
    case Finish::cancelled: ++counts.cancelled; break;
    case Finish::deadline: ++counts.expired; break;
    case Finish::error: ++counts.failed; break;
    default: ++counts.answers_done;
  }
  report(*answer, row, finish);
  if (active->listener) active->listener(update);
}

void Engine::Impl::report(const Answer& answer, int32_t row, Finish finish) const {
  if (options.observer == nullptr) return;
  AnswerRecord record;
  record.request = answer.active->id;
  record.answer = answer.index;
  record.row = row;
  record.submitted = answer.submitted;
  record.admitted = answer.admitted;
  record.first_token = answer.first_token;
  record.ended = options.now();
  record.prompt_tokens = answer.prompt_length;
  record.generated = static_cast<int64_t>(answer.tokens.size()) - answer.prompt_length;
  record.finish = finish;
  options.observer->on_answer(record);
}

void Engine::Impl::report(const PlannedStep& step, double seconds) const {
  if (options.observer == nullptr) return;
  StepRecord record;
  record.started = last_done - seconds;
  record.seconds = seconds;
  record.rows = static_cast<int64_t>(step.rows.size());
  for (const PlannedRow& row : step.rows) record.tokens += static_cast<int64_t>(row.tokens.size());
  record.running = static_cast<int64_t>(scheduler.running().size());
  record.waiting = scheduler.queue().size();
  const PrefixTree& tree = scheduler.memory().tree();
  for (size_t group = 0; group < runner->shape().groups.size(); ++group) {
    record.pages_used += tree.pool(group).size() - tree.available(group);
  }
  options.observer->on_step(record);
}

void Engine::Impl::cancel(RequestId id, Finish finish) {
  const auto found = requests.find(id);
  if (found == requests.end()) return;
  const std::shared_ptr<ActiveRequest> active = found->second;
  active->held_back.clear();
  while (!active->answers.empty()) {
    const std::shared_ptr<Answer> answer = active->answers.back();
    end(answer, finish, update_for(*answer), true);
  }
}

void Engine::Impl::process_cancels() {
  for (const RequestId id : std::exchange(cancels, {})) cancel(id, Finish::cancelled);
  if (deadlines.empty()) return;
  const double now = options.now();
  while (!deadlines.empty() && deadlines.begin()->first <= now) cancel(deadlines.begin()->second, Finish::deadline);
}

bool Engine::Impl::step() {
  try {
    process_cancels();
    if (!in_flight.empty() && !scheduler.can_look_ahead()) wait();
    const double started = options.now();
    PlannedStep planned = scheduler.plan(!in_flight.empty());
    finish_stuck();
    std::erase_if(planned.rows, [](const PlannedRow& row) { return row.answer->row_id != row.row_id; });
    if (planned.rows.empty() && in_flight.empty()) return !requests.empty();
    if (!planned.rows.empty()) {
      planned.started = started;
      runner->run(planned.plan());
      in_flight.push_back(std::move(planned));
      scheduler.queued(in_flight.back());
      if (in_flight.size() == 1 && scheduler.can_look_ahead()) return true;
    }
    wait();
    return true;
  } catch (const std::exception& error) {  // also for example std::bad_alloc: other requests go on
    fail(error.what());
    throw;
  }
}

/// Ends answers for which the mask allows no token: the grammar is complete, or no continuation exists.
void Engine::Impl::finish_stuck() {
  for (const std::shared_ptr<Answer>& answer : scheduler.take_stuck()) {
    Update update = update_for(*answer);
    const bool complete = answer->mask->can_end();
    if (!complete) update.error = "engine: the grammar allows no token here, and the answer may not end either";
    end(answer, complete ? Finish::stop_token : Finish::error, std::move(update), true);
  }
}

void Engine::Impl::wait() {
  const StepResult result = runner->wait();
  const PlannedStep step = std::move(in_flight.front());
  in_flight.pop_front();
  apply(step, result);
  const double now = options.now();
  const double seconds = now - std::max(step.started, last_done);  // steps in flight overlap
  last_done = now;
  ++counts.steps;
  counts.step_seconds += seconds;
  counts.longest_step = std::max(counts.longest_step, seconds);
  report(step, seconds);
}

void Engine::Impl::apply(const PlannedStep& step, const StepResult& result) {
  LAMINA_CHECK(result.rows.size() == step.rows.size(), "engine: a step of ", step.rows.size(),
               " rows gave results for ", result.rows.size(), " (internal error, please report it)");
  for (size_t i = 0; i < step.rows.size(); ++i) {
    // Drop the results of an answer that ended or was preempted after the step was queued.
    if (step.rows[i].answer->row_id == step.rows[i].row_id) apply_row(step.rows[i], result.rows[i]);
  }
}

void Engine::Impl::apply_row(const PlannedRow& row, const RowResult& result) {
  Answer& answer = *row.answer;
  counts.prompt_tokens += std::max<int64_t>(
      0, std::min(answer.prompt_length, row.offset + static_cast<int64_t>(row.tokens.size())) - row.offset);
  Update update = update_for(answer);
  const int64_t prompt = answer.prompt_length - (answer.scores_only() ? 1 : 0);
  const bool prompt_ends = row.offset < prompt && row.offset + static_cast<int64_t>(row.tokens.size()) >= prompt;
  if (answer.scores_prompt()) {
    answer.prompt_scores.insert(answer.prompt_scores.end(), result.scored.begin(), result.scored.end());
    if (prompt_ends) {
      answer.prompt_scored = true;
      update.prompt = std::move(answer.prompt_scores);
    }
  }
  if (prompt_ends && answer.scores_only()) {
    end(row.answer, Finish::max_tokens, std::move(update), true);
    return;
  }
  if (row.samples == 0) return;
  if (!answer.first_token) answer.first_token = options.now();
  --answer.unknown;
  const std::optional<Finish> finish = accept_sampled(row, result, update);
  counts.answer_tokens += static_cast<int64_t>(update.tokens.size());
  if (finish) {
    end(row.answer, *finish, std::move(update), *finish != Finish::error);
    return;
  }
  if (!answer.request().text) update.text.clear();
  const Listener& listener = answer.active->listener;
  if (listener && !listener(update) && !answer.ended) end(row.answer, Finish::asked, update_for(answer), true);
}

/// Accepts sampled tokens up to the first that differs from its draft. Each position used its own random number, so the
/// tokens are the same as without speculation.
std::optional<Finish> Engine::Impl::accept_sampled(const PlannedRow& row, const RowResult& result, Update& update) {
  Answer& answer = *row.answer;
  LAMINA_CHECK(static_cast<int64_t>(result.sampled.size()) == row.samples, "engine: a row with ", row.samples,
               " samples gave ", result.sampled.size(), " (internal error, please report it)");
  int64_t right = 0;
  std::optional<Finish> finish;
  for (size_t i = 0; i < result.sampled.size(); ++i) {
    finish = answer.accept(result.sampled[i], update);
    if (finish || i == row.draft.size() || result.sampled[i].id != row.draft[i]) break;
    ++right;
    ++answer.computed;
  }
  if (!row.draft.empty()) {
    counts.drafted += static_cast<int64_t>(row.draft.size());
    counts.accepted += right;
    scheduler.settle_draft(row, right);
  }
  return finish ? finish : accept_forced(answer, update);
}

/// Appends the tokens that a grammar forces. They are computed together with the next sampled token.
std::optional<Finish> Engine::Impl::accept_forced(Answer& answer, Update& update) {
  if (!answer.mask || answer.request().logprobs >= 0) return {};
  const auto& stops = answer.request().stop_tokens;
  for (const TokenId id : answer.mask->forced()) {
    if (std::find(stops.begin(), stops.end(), id) != stops.end()) break;
    ++counts.forced;
    if (const auto finish = answer.accept({id, 0, {}}, update)) return finish;
  }
  return {};
}

/// After a failed step, the contents of the cache are unknown. Ends all running answers and clears the prefix cache.
void Engine::Impl::fail(const std::string& message) {
  // The results of earlier steps are dropped; left in the runner, they would be taken for those of later steps.
  for (; !in_flight.empty(); in_flight.pop_front()) {
    try {
      runner->wait();
    } catch (const std::exception&) {  // the step failed too, or was the one that is reported
    }
  }
  while (!scheduler.running().empty()) {
    const std::shared_ptr<Answer> answer = scheduler.running().back();
    Update update = update_for(*answer);
    update.error = message;
    end(answer, Finish::error, std::move(update), false);
  }
  scheduler.memory().clear();
  if (draft_model) draft_model->clear();
}

EngineStats Engine::Impl::snapshot() const {
  EngineStats stats = counts;
  const CacheShape& shape = runner->shape();
  const PrefixTree& tree = scheduler.memory().tree();
  stats.waiting = scheduler.queue().size();
  stats.running = static_cast<int64_t>(scheduler.running().size());
  stats.rows = options.rows;
  stats.preemptions = scheduler.preemptions();
  if (draft_model) stats.draft_steps = draft_model->steps();
  stats.cached_tokens = scheduler.cached_tokens();
  stats.evictions = tree.evictions();
  for (size_t group = 0; group < shape.groups.size(); ++group) {
    stats.pages += tree.pool(group).size();
    stats.pages_cached += tree.cached(group);
    stats.pages_used += tree.pool(group).size() - tree.available(group);
    stats.cache_bytes += shape.groups[group].pages * shape.groups[group].bytes_per_page;
  }
  stats.cache_bytes += shape.state_slots * shape.bytes_per_state;
  if (tree.has_states()) {
    const size_t states = tree.state_resource();
    stats.states_used = tree.pool(states).size() - tree.available(states);
    stats.states_cached = tree.cached(states);
  }
  return stats;
}

std::vector<RunningAnswer> Engine::Impl::running() const {
  const double now = options.now();
  std::vector<RunningAnswer> rows;
  for (const std::shared_ptr<Answer>& answer : scheduler.running()) {
    RunningAnswer row;
    row.row = answer->slot;
    row.prompt_tokens = answer->prompt_length;
    row.computed = answer->computed;
    row.generated = static_cast<int64_t>(answer->tokens.size()) - answer->prompt_length;
    if (answer->first_token) row.seconds = now - *answer->first_token;
    rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.row < b.row; });
  return rows;
}

Engine::Engine(std::unique_ptr<StepRunner> runner, EngineOptions options, std::unique_ptr<StepRunner> draft)
    : impl_(std::make_unique<Impl>(std::move(runner), std::move(options), std::move(draft))) {}
Engine::~Engine() = default;

RequestId Engine::submit(Request request, Listener listener, RequestId id) {
  return impl_->submit(std::move(request), std::move(listener), id);
}
void Engine::cancel(RequestId id) { impl_->cancels.push_back(id); }
void Engine::cancel_all() {
  while (!impl_->requests.empty()) impl_->cancel(impl_->requests.begin()->first, Finish::cancelled);
}
bool Engine::step() { return impl_->step(); }
void Engine::run_until_idle() {
  while (step()) {
  }
}
EngineStats Engine::stats() const { return impl_->snapshot(); }
std::vector<RunningAnswer> Engine::running() const { return impl_->running(); }
const CacheShape& Engine::shape() const { return impl_->runner->shape(); }
void Engine::clear_prefix_cache() {
  impl_->scheduler.memory().clear();
  if (impl_->draft_model) impl_->draft_model->clear();
}

}  // namespace lamina::infer
