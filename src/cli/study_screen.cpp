#include "lamina/cli/study_screen.h"

#include <unistd.h>

#include <cstdio>

#include "lamina/cli/terminal.h"

namespace lamina::cli {
namespace {

std::string left(const lab::StudyProgress& progress) {
  return progress.seconds_left ? ", " + duration(*progress.seconds_left) + " left" : "";
}

bool is_measuring(const lab::StudyProgress& progress) {
  return !progress.active.empty() && progress.active[0].steps == 0;
}

std::string active(const lab::ActiveRun& run) {
  if (run.steps == 0) return "  [" + run.title + "]";
  char loss[32];
  std::snprintf(loss, sizeof loss, "%.3f", run.loss);
  return str("  [", run.title, ": ", run.step, "/", run.steps, run.step > 0 ? str(" loss ", loss) : "", "]");
}

std::string outcome_text(const lab::RunOutcome& outcome) {
  if (!outcome.cannot.empty()) return "cannot run: " + outcome.cannot;
  const lab::RunResult& result = *outcome.result;
  if (result.diverged) return "diverged: " + result.divergence;
  char text[96];
  if (result.best_loss) {
    std::snprintf(text, sizeof text, "best loss %.4f at step %lld", *result.best_loss,
                  static_cast<long long>(result.best_step));
  } else {
    std::snprintf(text, sizeof text, "loss %.4f", result.curve_loss.empty() ? 0.0 : result.curve_loss.back());
  }
  return str(text, outcome.cached ? " (cached)" : ", " + duration(outcome.seconds));
}

}  // namespace

StudyScreen::StudyScreen(bool terminal) : terminal_(terminal) {
  if (terminal_) return;
  heartbeat_.emplace(stdout);
  heartbeat_->note("preparing the data");
}

void StudyScreen::clear() {
  if (terminal_) std::fputs("\r\033[K", stdout);
}

void StudyScreen::end() {
  clear();
  heartbeat_.reset();
}

void StudyScreen::print(const std::string& line) {
  if (heartbeat_) return heartbeat_->print(line);
  clear();
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void StudyScreen::progress(const lab::StudyProgress& progress) {
  std::string line =
      str(progress.done, "/", progress.all, is_measuring(progress) ? " variants measured" : " runs", left(progress));
  for (const lab::ActiveRun& run : progress.active) line += active(run);
  if (heartbeat_) return heartbeat_->note(line);
  clear();
  std::fputs(line.substr(0, terminal_width(STDOUT_FILENO) - 1).c_str(), stdout);
  std::fflush(stdout);
}

void StudyScreen::run(const lab::RunReport& report) {
  print(str(report.progress.done, "/", report.progress.all, "  ", report.plan.title, ": ", outcome_text(report.outcome),
            left(report.progress)));
}

void StudyScreen::stage(const std::string& what) { print(what); }

}  // namespace lamina::cli
