#pragma once

#include <string>

namespace lamina::train {

/// Exclusive lock on a run's folder, for one process at a time. The kernel releases it when the process ends, even
/// after a crash.
class RunLock {
 public:
  RunLock() = default;
  /// Locks the run in `folder`. Throws Error if another process is training there.
  explicit RunLock(const std::string& folder);
  ~RunLock();
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;

  bool held() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

/// Moves a run that will be replaced to .NAME.replaced next to `folder`, until the new run completes its first update.
/// If a process finds it there later, the new run never started, and the old run is restored.
void set_run_aside(const std::string& folder);
/// Deletes the new run and restores the replaced one. Returns false if there is none. Throws an Error if another
/// process is training the new run.
bool restore_replaced_run(const std::string& folder);
/// Deletes the replaced run, if there is one.
void discard_replaced_run(const std::string& folder);

}  // namespace lamina::train
