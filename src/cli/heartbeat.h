#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

namespace lamina::cli {

/// Progress of a long job if the output is not a terminal but a log file or a pipe. A thread repeats the last status
/// after ten seconds without output, even if the job reports nothing. LAMINA_PROGRESS_SECONDS changes the ten seconds.
/// All functions are thread-safe.
class Heartbeat {
 public:
  explicit Heartbeat(std::FILE* out);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Sets the status without printing it.
  void note(const std::string& status);
  /// Prints a line, which becomes the status.
  void print(const std::string& line);
  /// Prints the last line of a job and clears the status.
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
  Clock::time_point printed_;  ///< when the last line was printed
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace lamina::cli
