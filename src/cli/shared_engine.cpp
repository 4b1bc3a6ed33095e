#include "lamina/cli/shared_engine.h"

#include <csignal>

#include "lamina/cli/stop_signal.h"

namespace lamina::cli {

void lead_ranks(const std::shared_ptr<const nn::TensorParallel>& ranks, const std::function<void()>& work) {
  if (!ranks) return work();
  comm::Communicator& all = ranks->ranks();
  try {
    work();
  } catch (const std::exception& error) {
    all.abort(str("rank 0 (host ", all.host(0), ") failed: ", error.what()));
    throw;
  }
}

void follow_engine(const std::shared_ptr<const nn::TensorParallel>& ranks,
                   const std::function<void(infer::StepFollower&)>& load) {
  std::signal(SIGHUP, SIG_IGN);  // on SIGHUP, only rank 0 reads its API keys again
  catch_stop_signals("");
  infer::StepFollower follower(ranks);
  load(follower);
  follower.run();
}

RankWatch::RankWatch(std::shared_ptr<const nn::TensorParallel> ranks, std::function<void()> on_lost,
                     std::function<void()> on_late)
    : ranks_(std::move(ranks)) {
  if (!ranks_) return;
  thread_ =
      std::thread([this, on_lost = std::move(on_lost), on_late = std::move(on_late)] { watch(on_lost, on_late); });
}

RankWatch::~RankWatch() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RankWatch::check() const {
  if (!ranks_) return;
  if (const std::string reason = ranks_->ranks().failure(); !reason.empty()) throw comm::CommError(reason);
}

void RankWatch::watch(const std::function<void()>& on_lost, const std::function<void()>& on_late) {
  constexpr std::chrono::milliseconds kInterval{100};
  std::unique_lock lock(mutex_);
  while (ranks_->ranks().failure().empty()) {
    if (changed_.wait_for(lock, kInterval, [this] { return ended_; })) return;
  }
  on_lost();
  if (!changed_.wait_for(lock, kPatience, [this] { return ended_; })) on_late();
}

}  // namespace lamina::cli
