#pragma once

#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <vector>

#include "lamina/lab/run.h"

namespace lamina::lab {

struct ActiveRun {
  std::string title;
  int64_t step = 0;
  int64_t steps = 0;
  double loss = 0;
};

/// Where a study stands.
struct StudyProgress {
  size_t done = 0;  ///< runs that ended, read back or not
  size_t all = 0;
  std::optional<double> seconds_left;  ///< nothing before the first updates
  std::vector<ActiveRun> active;
};

/// A run ended.
struct RunReport {
  const RunPlan& plan;
  const RunOutcome& outcome;
  StudyProgress progress;
};

/// Who watches a study; any may be empty. Calls come from several threads, but for `stop` one at a time.
struct StudyWatcher {
  std::function<void(const StudyProgress&)> on_progress;
  std::function<void(const RunReport&)> on_run;
  /// What is done besides training, before it begins.
  std::function<void(const std::string&)> on_stage;
  /// Asked after every update, by several runs at once: true makes every run write a checkpoint and stop.
  std::function<bool()> stop;
};

/// Makes runs, several at a time. Each has a thread and a device of its own: a run's bits do not depend on what runs
/// beside it, and what one throws is its result and nobody else's. A process that is killed loses no more than each
/// run's updates since its last checkpoint.
class Runner {
 public:
  struct Options {
    int jobs = 1;
    bool keep_weights = false;
  };
  Runner(const StudyData& data, const Options& options, const StudyWatcher& watcher);

  /// Tells of runs to come, for the time left.
  void expect(size_t runs, double work);
  /// Makes these runs, whose hashes differ, in order, and calls `ended` with each outcome, one at a time. False where
  /// it was stopped before the last.
  bool run(const std::vector<RunPlan>& plans, const std::function<void(size_t, const RunOutcome&)>& ended);

  /// Seconds that runs took in this process, all together.
  double seconds_of_runs() const { return seconds_of_runs_; }

 private:
  void work(const std::vector<RunPlan>& plans, const std::function<void(size_t, const RunOutcome&)>& ended);
  std::optional<size_t> take(const std::vector<RunPlan>& plans);
  void update(size_t index, const RunPlan& plan, const train::UpdateReport& report);
  void end(const std::vector<RunPlan>& plans, size_t index, const RunOutcome& outcome,
           const std::function<void(size_t, const RunOutcome&)>& ended);
  StudyProgress progress() const;
  bool stopping() const;

  const StudyData& data_;
  Options options_;
  const StudyWatcher& watcher_;
  mutable std::mutex mutex_;
  size_t next_ = 0;
  size_t done_ = 0;
  size_t expected_ = 0;
  double work_left_ = 0;     ///< of runs that have not begun or are under way, as if they had not
  double work_trained_ = 0;  ///< of runs that were trained here
  double seconds_of_runs_ = 0;
  std::map<size_t, ActiveRun> active_;
  std::map<size_t, double> active_work_;  ///< done so far
  std::map<size_t, double> active_from_;  ///< done before this process
  std::exception_ptr failure_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace lamina::lab
