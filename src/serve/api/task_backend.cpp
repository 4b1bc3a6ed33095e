#include "lamina/serve/api/task_backend.h"

#include "lamina/serve/api/fields.h"

namespace lamina::serve {

TaskBackend::TaskBackend(int64_t vocab_size, int64_t context, std::string refusal) : refusal_(std::move(refusal)) {
  shape_.vocab_size = vocab_size;
  shape_.context = context;
  thread_ = std::thread([this] { run(); });
}

TaskBackend::~TaskBackend() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

infer::RequestId TaskBackend::submit(infer::Request /*request*/, infer::Listener /*listener*/) {
  throw ApiError(400, refusal_, "model");
}

void TaskBackend::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (tasks_.size() >= infer::EngineThread::kMaxTasks) {
      throw infer::QueueFull(
          str("serve: ", infer::EngineThread::kMaxTasks, " tasks wait, which is the limit: try again later"));
    }
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void TaskBackend::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || !tasks_.empty(); });
    if (stop_) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    try {
      task();
    } catch (const std::exception&) {  // Backend::post: the task reports its errors itself
    }
    task = nullptr;  // destroyed without the lock
    lock.lock();
  }
}

}  // namespace lamina::serve
