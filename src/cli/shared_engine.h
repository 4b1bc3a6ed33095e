#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "lamina/cli/job.h"
#include "lamina/infer/runner/rank_steps.h"

namespace lamina::cli {

/// Runs `work` on rank 0 of the ranks that share a model. If it throws, the other ranks end with its message. Null
/// ranks: a single process.
void lead_ranks(const std::shared_ptr<const nn::TensorParallel>& ranks, const std::function<void()>& work);

/// Runs on the other ranks: creates a StepFollower, passes it to `load`, which adds the models, and follows until rank
/// 0 stops. A stop signal is ignored, because rank 0 first finishes its requests; a second one ends this process.
void follow_engine(const std::shared_ptr<const nn::TensorParallel>& ranks,
                   const std::function<void(infer::StepFollower&)>& load);

/// Watches the other ranks for rank 0. While rank 0 is idle it makes no calls, so it would not notice a lost rank.
class RankWatch {
 public:
  /// If a rank is lost, a thread calls `on_lost` and, kPatience later, `on_late`. Null ranks: watches nothing.
  RankWatch(std::shared_ptr<const nn::TensorParallel> ranks, std::function<void()> on_lost,
            std::function<void()> on_late);
  ~RankWatch();  ///< ends the thread
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  /// Throws comm::CommError if a rank is lost.
  void check() const;

 private:
  void watch(const std::function<void()>& on_lost, const std::function<void()>& on_late);

  static constexpr std::chrono::milliseconds kPatience{2000};
  std::shared_ptr<const nn::TensorParallel> ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace lamina::cli
