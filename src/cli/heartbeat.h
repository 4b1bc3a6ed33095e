#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

namespace lamina::cli {

/// Progress of a long job where the output is no terminal: a log file or a pipe. A thread repeats the last status if
/// nothing was printed for ten seconds, even if the job itself reports nothing in that time. The environment variable
/// LAMINA_PROGRESS_SECONDS changes the ten seconds. All functions may be called from any thread.
class Heartbeat {
 public:
  explicit Heartbeat(std::FILE* out);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Sets the status without printing it.
  void note(const std::string& status);
  /// Prints a line; it becomes the status.
  void print(const std::string& line);
  /// Prints the last line of a job. There is no status until the next call of note or print.
  void finish(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  void write(const std::string& line);
  void repeat();

  std::FILE* out_;
  Clock::duration every_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string status_;
  Clock::time_point noted_;    ///< when the status was set
  Clock::time_point printed_;  ///< when a line was printed last
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace lamina::cli
