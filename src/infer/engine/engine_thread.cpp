#include "lamina/infer/engine/engine_thread.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "lamina/infer/engine/check_request.h"

namespace lamina::infer {
namespace {

template <class T>
void append_to(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

bool UpdateQueue::push(const Update& update) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  const auto same = std::find_if(updates_.begin(), updates_.end(),
                                 [&](const Update& other) { return other.answer == update.answer; });
  if (same == updates_.end()) {
    updates_.push_back(update);
  } else {
    append_to(same->tokens, update.tokens);
    append_to(same->prompt, update.prompt);
    same->text += update.text;
    same->finish = update.finish;
    same->error = update.error;
    same->cached_tokens = update.cached_tokens;
    same->request_done = update.request_done;
    // Move the update that completes the request to the end, so that it is delivered last.
    if (update.request_done) std::rotate(same, std::next(same), updates_.end());
  }
  arrived_.notify_one();
  return true;
}

std::optional<Update> UpdateQueue::pop(double seconds) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return !updates_.empty(); });
  if (updates_.empty()) return {};
  Update update = std::move(updates_.front());
  updates_.erase(updates_.begin());
  return update;
}

void UpdateQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  updates_.clear();
}

EngineThread::EngineThread(std::unique_ptr<StepRunner> runner, EngineOptions options, std::unique_ptr<StepRunner> draft)
    : options_(options),
      engine_(std::move(runner), std::move(options), std::move(draft)),
      shape_(engine_.shape()),
      stats_(engine_.stats()),
      thread_([this] { run(); }) {}

EngineThread::~EngineThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

RequestId EngineThread::submit(Request request, Listener listener) {
  check_request(request, shape_, options_);
  RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    int64_t waiting = stats_.waiting + request.n;
    for (const Submission& other : inbox_) waiting += other.request.n;
    if (waiting > options_.max_waiting) {
      ++rejected_;
      throw QueueFull(
          str("engine: ", waiting, " answers would wait; at most ", options_.max_waiting, " may: try again later"));
    }
    id = ++last_id_;
    inbox_.push_back({id, std::move(request), std::move(listener)});
  }
  wake_.notify_one();
  return id;
}

std::shared_ptr<UpdateQueue> EngineThread::submit(Request request) {
  auto queue = std::make_shared<UpdateQueue>();
  submit(std::move(request), [queue](const Update& update) { return queue->push(update); });
  return queue;
}

void EngineThread::cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    cancels_.push_back(id);
  }
  wake_.notify_one();
}

void EngineThread::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (tasks_.size() >= kMaxTasks) {
      throw QueueFull(str("engine: ", kMaxTasks, " tasks wait, which is the limit: try again later"));
    }
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

std::vector<RunningAnswer> EngineThread::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

EngineStats EngineThread::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.rejected += rejected_;
  return stats;
}

/// Copies the engine's state for other threads. While steps run, the rows are listed only every kRowsInterval.
void EngineThread::publish(bool idle) {
  stats_ = engine_.stats();
  const auto now = std::chrono::steady_clock::now();
  if (!idle && std::chrono::duration<double>(now - running_at_).count() < kRowsInterval) return;
  running_ = engine_.running();
  running_at_ = now;
}

/// Runs the oldest task, if there is one.
void EngineThread::run_task() {
  std::function<void()> task;
  {
    const std::lock_guard lock(mutex_);
    if (tasks_.empty()) return;
    task = std::move(tasks_.front());
    tasks_.pop_front();
  }
  try {
    task();
  } catch (const std::exception&) {  // see post()
  }
}

/// Passes new requests and cancellations to the engine. Returns false if the thread must end.
bool EngineThread::take_inbox(bool idle) {
  std::vector<Submission> submissions;
  std::vector<RequestId> cancels;
  {
    std::unique_lock lock(mutex_);
    publish(idle);
    if (idle) wake_.wait(lock, [&] { return stop_ || !inbox_.empty() || !cancels_.empty() || !tasks_.empty(); });
    if (stop_) return false;
    submissions = std::exchange(inbox_, {});
    cancels = std::exchange(cancels_, {});
    for (const Submission& submission : submissions) stats_.waiting += submission.request.n;
  }
  for (Submission& submission : submissions) {
    try {
      engine_.submit(std::move(submission.request), submission.listener, submission.id);
    } catch (const Error& error) {
      Update update;
      update.request = submission.id;
      update.finish = Finish::error;
      update.error = error.what();
      update.request_done = true;
      if (submission.listener) submission.listener(update);
    }
  }
  for (const RequestId id : cancels) engine_.cancel(id);
  return true;
}

void EngineThread::run() {
  bool idle = true;
  while (take_inbox(idle)) {
    run_task();
    try {
      idle = !engine_.step();
    } catch (const Error&) {
      idle = false;  // the listeners know about the error; waiting answers continue
    }
  }
  engine_.cancel_all();
}

}  // namespace lamina::infer
