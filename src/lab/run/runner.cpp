#include "lamina/lab/run/runner.h"

#include <algorithm>
#include <thread>

namespace lamina::lab {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kBetweenReports = std::chrono::milliseconds(100);

}  // namespace

Runner::Runner(const Options& options, const StudyWatcher& watcher)
    : options_(options), watcher_(watcher), start_(Clock::now()) {}

void Runner::expect(size_t runs, double work) {
  const std::lock_guard lock(mutex_);
  expected_ += runs;
  work_left_ += work;
}

bool Runner::stopping() const { return watcher_.stop && watcher_.stop(); }

StudyProgress Runner::progress() const {
  StudyProgress progress{.done = done_, .all = expected_, .seconds_left = {}, .active = {}};
  double trained = work_trained_;
  double left = work_left_;
  for (const auto& [index, run] : active_) {
    progress.active.push_back(run);
    const auto from = active_from_.find(index);
    if (from == active_from_.end()) continue;  // no update yet
    trained += active_work_.at(index) - from->second;
    left -= active_work_.at(index);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  if (trained > 0) progress.seconds_left = std::max(0.0, left) * seconds / trained;
  return progress;
}

void Runner::update(size_t index, const RunPlan& plan, const train::UpdateReport& report) {
  const std::lock_guard lock(mutex_);
  ActiveRun& run = active_.at(index);
  run.step = report.progress.step;
  run.loss = report.progress.smoothed_loss;
  const double each = plan.work / static_cast<double>(plan.recipe.steps);
  active_work_[index] = each * static_cast<double>(run.step);
  if (!active_from_.contains(index)) active_from_[index] = each * static_cast<double>(run.step - 1);
  const auto now = Clock::now();
  if (!watcher_.on_progress || now - shown_ < kBetweenReports) return;
  shown_ = now;
  // An exception of the callback must not become the result of the run.
  try {
    watcher_.on_progress(progress());
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
  }
}

std::optional<size_t> Runner::take(const std::vector<RunPlan>& plans) {
  const std::lock_guard lock(mutex_);
  if (failure_ || next_ >= plans.size() || stopping()) return {};
  const size_t index = next_++;
  active_[index] = {.title = plans[index].title, .step = 0, .steps = plans[index].recipe.steps, .loss = 0};
  active_work_[index] = 0;
  return index;
}

void Runner::end(const std::vector<RunPlan>& plans, size_t index, const RunOutcome& outcome,
                 const std::function<void(size_t, const RunOutcome&)>& ended) {
  const std::lock_guard lock(mutex_);
  const bool trained = active_from_.contains(index);
  const bool over = outcome.result || !outcome.cannot.empty();
  if (trained) work_trained_ += (over ? plans[index].work : active_work_[index]) - active_from_[index];
  if (over) {
    work_left_ -= plans[index].work;
    ++done_;
  }
  if (!outcome.cached) seconds_of_runs_ += outcome.seconds;
  active_.erase(index);
  active_work_.erase(index);
  active_from_.erase(index);
  if (!over) return;
  try {
    ended(index, outcome);
    if (watcher_.on_run) watcher_.on_run({plans[index], outcome, progress()});
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
  }
}

void Runner::work(const std::vector<RunPlan>& plans, const std::function<void(size_t, const RunOutcome&)>& ended) {
  while (const std::optional<size_t> index = take(plans)) {
    const RunPlan& plan = plans[*index];
    const RunHooks hooks{.on_update = [&](const train::UpdateReport& report) { update(*index, plan, report); },
                         .stop =
                             [this] {
                               if (stopping()) return true;
                               const std::lock_guard lock(mutex_);
                               return failure_ != nullptr;
                             }};
    end(plans, *index, execute_run(plan, options_.keep_weights, hooks), ended);
  }
}

bool Runner::run(const std::vector<RunPlan>& plans, const std::function<void(size_t, const RunOutcome&)>& ended) {
  next_ = 0;
  const size_t before = done_;
  const auto jobs = static_cast<size_t>(std::max(1, options_.jobs));
  // The calling thread works, too, so a study with one job starts no other thread.
  std::vector<std::thread> others;
  for (size_t i = 1; i < std::min(jobs, plans.size()); ++i) others.emplace_back([&] { work(plans, ended); });
  work(plans, ended);
  for (std::thread& thread : others) thread.join();
  if (failure_) std::rethrow_exception(failure_);
  return done_ - before == plans.size();
}

}  // namespace lamina::lab
