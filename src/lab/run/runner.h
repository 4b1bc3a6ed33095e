#pragma once

#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <vector>

#include "lamina/lab/run/run.h"

namespace lamina::lab {

/// A run or measurement in progress.
struct ActiveRun {
  std::string title;
  int64_t step = 0;
  int64_t steps = 0;  ///< 0 for a measurement
  double loss = 0;
};

/// Progress of a study.
struct StudyProgress {
  size_t done = 0;  ///< finished runs, including cached ones
  size_t all = 0;
  std::optional<double> seconds_left;  ///< empty before the first update
  std::vector<ActiveRun> active;
};

/// Passed to on_run when a run ends.
struct RunReport {
  const RunPlan& plan;
  const RunOutcome& outcome;
  StudyProgress progress;
};

/// Callbacks of a study; each may be empty. Several threads call them, but only one at a time, except for `stop`.
struct StudyWatcher {
  std::function<void(const StudyProgress&)> on_progress;
  std::function<void(const RunReport&)> on_run;
  /// Announces work other than runs: data preparation, a finished measurement.
  std::function<void(const std::string&)> on_stage;
  /// Polled after every update, possibly by several runs at once. Returning true makes every run save a checkpoint and
  /// stop.
  std::function<bool()> stop;
};

/// Executes runs, several at a time. Each has its own thread and device. So concurrent runs do not change its results,
/// and its errors affect only itself. If the process is killed, each run loses at most the updates since its last
/// checkpoint.
class Runner {
 public:
  struct Options {
    int jobs = 1;
    bool keep_weights = false;
  };
  Runner(const Options& options, const StudyWatcher& watcher);

  /// Announces future runs, for the estimate of the remaining time.
  void expect(size_t runs, double work);
  /// Executes these runs in order. Calls `ended` with each outcome, one at a time. The runs' hashes must differ.
  /// Returns false if stopped early.
  bool run(const std::vector<RunPlan>& plans, const std::function<void(size_t, const RunOutcome&)>& ended);

  /// Sum of the runs' wall times in this process.
  double seconds_of_runs() const { return seconds_of_runs_; }

 private:
  void work(const std::vector<RunPlan>& plans, const std::function<void(size_t, const RunOutcome&)>& ended);
  std::optional<size_t> take(const std::vector<RunPlan>& plans);
  void update(size_t index, const RunPlan& plan, const train::UpdateReport& report);
  void end(const std::vector<RunPlan>& plans, size_t index, const RunOutcome& outcome,
           const std::function<void(size_t, const RunOutcome&)>& ended);
  StudyProgress progress() const;
  bool stopping() const;

  Options options_;
  const StudyWatcher& watcher_;
  mutable std::mutex mutex_;
  size_t next_ = 0;
  size_t done_ = 0;
  size_t expected_ = 0;
  double work_left_ = 0;     ///< FLOPs of waiting and active runs; active runs count completely
  double work_trained_ = 0;  ///< FLOPs trained by this process in runs that have ended
  double seconds_of_runs_ = 0;
  std::map<size_t, ActiveRun> active_;
  std::map<size_t, double> active_work_;  ///< per run: FLOPs completed so far
  std::map<size_t, double> active_from_;  ///< per run: FLOPs completed before this process
  std::exception_ptr failure_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace lamina::lab
