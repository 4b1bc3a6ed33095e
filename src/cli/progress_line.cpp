#include "lamina/cli/progress_line.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>

#include "lamina/arch/plan.h"
#include "lamina/base/error.h"
#include "lamina/cli/terminal.h"

namespace lamina::cli {
namespace {

class ProgressLine {
 public:
  explicit ProgressLine(Amount amount) : amount_(amount) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// A job begins with another name, or with the same when it was done.
  void show(const std::string& job, int64_t done, int64_t total) {
    const auto now = Clock::now();
    if (job != job_ || (ended_ && done < total)) {
      job_ = job;
      ended_ = false;
      begun_ = now;
      next_ = terminal_ ? now : now + kBetweenLines;
    }
    if (ended_) return;
    ended_ = done >= total;
    const double seconds = std::chrono::duration<double>(now - begun_).count();
    if (ended_) {
      clear();
      if (!terminal_)
        write(job_ + ": " + amount_(static_cast<double>(total)) + (seconds < 1 ? "" : ", " + duration(seconds)));
    } else if (now >= next_) {
      next_ = now + (terminal_ ? kBetweenDrawings : kBetweenLines);
      write(text(static_cast<double>(done), static_cast<double>(total), seconds));
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kBetweenDrawings = std::chrono::milliseconds(100);
  static constexpr Clock::duration kBetweenLines = std::chrono::minutes(1);

  std::string text(double done, double total, double seconds) const {
    const double share = done / total;
    std::string text = str(job_, ": ", static_cast<int>(100 * share), " % of ", amount_(total));
    if (seconds > 0.2 && done > 0) {
      text += str(", ", amount_(done / seconds), "/s, ", duration(seconds * (1 - share) / share), " left");
    }
    return text;
  }

  void write(const std::string& text) {
    if (!terminal_) return static_cast<void>(std::fprintf(stderr, "%s\n", text.c_str()));
    // One that runs over could not be written over.
    std::fprintf(stderr, "\r\033[K%s", text.substr(0, terminal_width(STDERR_FILENO) - 1).c_str());
    std::fflush(stderr);
    drawn_ = true;
  }

  void clear() {
    if (drawn_) std::fputs("\r\033[K", stderr);
    drawn_ = false;
  }

  Amount amount_;
  bool terminal_ = ::isatty(STDERR_FILENO) != 0;
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
