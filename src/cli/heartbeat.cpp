#include "lamina/cli/heartbeat.h"

#include <cstdlib>

#include "lamina/cli/terminal.h"

namespace lamina::cli {
namespace {

constexpr double kSeconds = 10;

double seconds_between_lines() {
  const char* given = std::getenv("LAMINA_PROGRESS_SECONDS");
  const double seconds = given == nullptr ? kSeconds : std::strtod(given, nullptr);
  return seconds > 0.01 && seconds < 1e6 ? seconds : kSeconds;
}

}  // namespace

Heartbeat::Heartbeat(std::FILE* out)
    : out_(out),
      every_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_between_lines()))),
      noted_(Clock::now()),
      printed_(noted_),
      thread_([this] { repeat(); }) {}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Heartbeat::note(const std::string& status) {
  const std::lock_guard lock(mutex_);
  noted_ = Clock::now();
  if (status_.empty()) {  // a new job: its first line is due after one period
    printed_ = noted_;
    changed_.notify_all();
  }
  status_ = status;
}

void Heartbeat::print(const std::string& line) {
  const std::lock_guard lock(mutex_);
  noted_ = Clock::now();
  status_ = line;
  write(line);
  changed_.notify_all();
}

void Heartbeat::finish(const std::string& line) {
  const std::lock_guard lock(mutex_);
  status_.clear();
  write(line);
}

void Heartbeat::write(const std::string& line) {
  std::fprintf(out_, "%s\n", line.c_str());
  std::fflush(out_);
  printed_ = Clock::now();
}

void Heartbeat::repeat() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    const Clock::time_point now = Clock::now();
    if (!status_.empty() && now - printed_ >= every_) {
      const double age = std::chrono::duration<double>(now - noted_).count();
      write(status_ + (age < 1 ? "" : "  (" + duration(age) + " ago)"));
    }
    // Without a status, nothing has to be printed for at least one period.
    changed_.wait_until(lock, (status_.empty() ? now : printed_) + every_);
  }
}

}  // namespace lamina::cli
