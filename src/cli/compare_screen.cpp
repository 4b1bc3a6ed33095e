#include "lamina/cli/compare_screen.h"

#include <unistd.h>

#include <cstdio>

#include "lamina/cli/terminal.h"

namespace lamina::cli {
namespace {

std::string left(const lab::StudyProgress& progress) {
  return progress.seconds_left ? ", " + duration(*progress.seconds_left) + " left" : "";
}

std::string active(const lab::ActiveRun& run) {
  char loss[32];
  std::snprintf(loss, sizeof loss, "%.3f", run.loss);
  return str("  [", run.title, ": ", run.step, "/", run.steps, run.step > 0 ? str(" loss ", loss) : "", "]");
}

std::string outcome_text(const lab::RunOutcome& outcome) {
  if (!outcome.cannot.empty()) return "cannot: " + outcome.cannot;
  const lab::RunResult& result = *outcome.result;
  if (result.diverged) return "diverged: " + result.divergence;
  char text[96];
  if (result.best_loss) {
    std::snprintf(text, sizeof text, "best loss %.4f at step %lld", *result.best_loss,
                  static_cast<long long>(result.best_step));
  } else {
    std::snprintf(text, sizeof text, "loss %.4f", result.curve_loss.empty() ? 0.0 : result.curve_loss.back());
  }
  return str(text, outcome.cached ? " (read back)" : ", " + duration(outcome.seconds));
}

}  // namespace

void CompareScreen::clear() {
  if (terminal_) std::fputs("\r\033[K", stdout);
}

void CompareScreen::progress(const lab::StudyProgress& progress) {
  if (!terminal_) return;
  std::string line = str(progress.done, "/", progress.all, " runs", left(progress));
  for (const lab::ActiveRun& run : progress.active) line += active(run);
  clear();
  std::fputs(line.substr(0, terminal_width(STDOUT_FILENO) - 1).c_str(), stdout);
  std::fflush(stdout);
}

void CompareScreen::run(const lab::RunReport& report) {
  clear();
  std::printf("%zu/%zu  %s: %s%s\n", report.progress.done, report.progress.all, report.plan.title.c_str(),
              outcome_text(report.outcome).c_str(), left(report.progress).c_str());
  std::fflush(stdout);
}

void CompareScreen::stage(const std::string& what) {
  clear();
  std::printf("%s\n", what.c_str());
  std::fflush(stdout);
}

}  // namespace lamina::cli
