#include "lamina/cli/progress_line.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "lamina/arch/plan.h"
#include "lamina/base/error.h"
#include "lamina/cli/heartbeat.h"
#include "lamina/cli/stop_signal.h"
#include "lamina/cli/terminal.h"

namespace lamina::cli {
namespace {

class ProgressLine {
 public:
  explicit ProgressLine(Amount amount) : amount_(amount) {
    if (::isatty(STDERR_FILENO) == 0) heartbeat_.emplace(stderr);
  }
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Shows progress. A new job begins if the name changes or the last job has ended. Throws Stopped after a stop
  /// signal.
  void show(const std::string& job, int64_t done, int64_t total) {
    throw_if_stopped();
    const auto now = Clock::now();
    if (job != job_ || (ended_ && done < total)) {
      job_ = job;
      ended_ = false;
      begun_ = now;
      next_ = now;
    }
    if (ended_) return;
    ended_ = total > 0 && done >= total;
    const double seconds = std::chrono::duration<double>(now - begun_).count();
    if (ended_) {
      clear();
      if (heartbeat_) {
        const std::string took = seconds < 1 ? "" : ", " + duration(seconds);
        heartbeat_->finish(job_ + ": " + amount_(static_cast<double>(total)) + took);
      }
    } else if (now >= next_) {
      next_ = now + kBetweenDrawings;
      const std::string status = text(static_cast<double>(done), static_cast<double>(total), seconds);
      heartbeat_ ? heartbeat_->note(status) : draw(status);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kBetweenDrawings = std::chrono::milliseconds(100);

  std::string text(double done, double total, double seconds) const {
    if (total <= 0) return str(job_, ": ", amount_(done), " so far");
    const double share = done / total;
    std::string text = str(job_, ": ", static_cast<int>(100 * share), " % of ", amount_(total));
    if (seconds > 0.2 && done > 0) {
      text += str(", ", amount_(done / seconds), "/s, ", duration(seconds * (1 - share) / share), " left");
    }
    return text;
  }

  void draw(const std::string& text) {
    // Truncated, because a line that is wider than the terminal could not be overwritten.
    std::fprintf(stderr, "\r\033[K%s", text.substr(0, terminal_width(STDERR_FILENO) - 1).c_str());
    std::fflush(stderr);
    drawn_ = true;
  }

  void clear() {
    if (drawn_) std::fputs("\r\033[K", stderr);
    drawn_ = false;
  }

  Amount amount_;
  std::optional<Heartbeat> heartbeat_;  ///< empty on a terminal
  std::string job_;
  bool ended_ = false;
  bool drawn_ = false;
  Clock::time_point begun_;
  Clock::time_point next_;
};

}  // namespace

std::string count_of_tokens(double value) { return arch::with_commas(std::llround(value)) + " tokens"; }

std::function<void(int64_t done, int64_t total)> progress_of(const std::string& job, Amount amount) {
  return [job, line = std::make_shared<ProgressLine>(amount)](int64_t done, int64_t total) {
    line->show(job, done, total);
  };
}

data::PrepareWatch progress_of_preparation() {
  return [line = std::make_shared<ProgressLine>(arch::short_bytes)](const data::PrepareProgress& progress) {
    line->show(progress.stage, progress.bytes, progress.bytes_total);
  };
}

}  // namespace lamina::cli
