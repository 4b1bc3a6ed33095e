#pragma once

#include <string>

namespace lamina::train {

/// The right to write to a run's folder. One process at a time holds it; the kernel releases it when the process ends,
/// however it ends.
class RunLock {
 public:
  RunLock() = default;
  /// Locks the run in `folder`. An Error if another process is training there.
  explicit RunLock(const std::string& folder);
  ~RunLock();
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;

  bool held() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

/// The run that a new one replaces in `folder` stays beside it, as .NAME.replaced, until the new run has made its first
/// update. Whoever finds it there later puts it back: the new run never began.
void set_run_aside(const std::string& folder);
/// Puts the replaced run back and deletes the new one; false if none is there. An Error if another process is training
/// the new one.
bool restore_replaced_run(const std::string& folder);
/// Deletes the replaced run, if one is there.
void discard_replaced_run(const std::string& folder);

}  // namespace lamina::train
