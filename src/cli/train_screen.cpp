#include "lamina/cli/train_screen.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <utility>

#include "lamina/arch/plan.h"
#include "lamina/cli/terminal.h"

namespace lamina::cli {
namespace {

constexpr double kBetweenDrawings = 0.1;
constexpr size_t kAnyWidth = 1000;

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char buffer[256];
  std::snprintf(buffer, sizeof buffer, pattern, args...);
  return buffer;
}

/// For example "  accuracy 98.2 % (whole examples 91.0 %)". Also has the accuracy of longer examples.
std::string accuracy_text(const train::Progress& progress) {
  const auto shares = [](const char* what, const std::optional<train::Accuracy>& accuracy) {
    if (!accuracy) return std::string();
    return format("  %s %.1f %% (whole examples %.1f %%)", what, 100 * accuracy->tokens, 100 * accuracy->examples);
  };
  return shares("accuracy", progress.accuracy) + shares("longer", progress.longer_accuracy);
}

}  // namespace

TrainScreen::TrainScreen(const train::Trainer& trainer, train::PeakShare share, bool terminal)
    : steps_(trainer.recipe().steps), device_(trainer.device()), share_(std::move(share)), terminal_(terminal) {
  if (terminal_) return;
  heartbeat_.emplace(stdout);
  heartbeat_->note("starting: no update is done yet");
}

std::string TrainScreen::line(const train::UpdateReport& report, size_t width) {
  const train::Progress& progress = report.progress;
  std::string work = format("%.1f GFLOP/s", report.flops_per_second / 1e9);
  if (const auto share = share_.of(report.flops_per_second)) work += format(" (%.0f %%)", 100 * *share);
  // The parts of the line, in order. A narrow terminal drops those with the highest number first.
  const std::pair<int, std::string> parts[] = {
      {0, format("step %lld/%lld", static_cast<long long>(progress.step), static_cast<long long>(steps_))},
      {0, format("loss %.4f", progress.loss)},
      {1, format("smoothed %.4f", progress.smoothed_loss)},
      {4, format("norm %.2f", report.result.grad_norm)},
      {3, format("lr %.2e", report.result.lr)},
      {2, arch::with_commas(std::llround(report.tokens_per_second)) + " tok/s"},
      {5, work},
      {6, arch::short_bytes(static_cast<double>(device_.allocator().counters().reserved))},
      {0, duration(report.seconds_left) + " left"}};
  std::string text;
  for (int most = 6; most >= 0; --most) {
    text.clear();
    for (const auto& [rank, part] : parts) {
      if (rank <= most) text += (text.empty() ? "" : "  ") + part;
    }
    if (text.size() < width) break;
  }
  return text.substr(0, width);
}

void TrainScreen::clear() {
  if (terminal_) std::fputs("\r\033[K", stdout);
}

void TrainScreen::update(const train::UpdateReport& report) {
  if (heartbeat_) {
    const std::string text = line(report, kAnyWidth);
    return report.logged ? heartbeat_->print(text) : heartbeat_->note(text);
  }
  const bool last = report.progress.step == steps_;
  const double now = report.progress.seconds;
  if (!last && drawn_at_ > 0 && now - drawn_at_ < kBetweenDrawings) return;
  drawn_at_ = now;
  clear();
  std::fputs(line(report, terminal_width(STDOUT_FILENO) - 1).c_str(), stdout);
  std::fflush(stdout);
}

void TrainScreen::evaluation(const train::EvaluationReport& report) {
  const train::Progress& progress = report.progress;
  const std::string best = report.improved ? "  best so far, kept"
                                           : format("  best %.4f at step %lld", *progress.best_loss,
                                                    static_cast<long long>(progress.best_step));
  const std::string text = format("step %lld/%lld  validation %.4f", static_cast<long long>(progress.step),
                                  static_cast<long long>(steps_), *progress.validation_loss) +
                           accuracy_text(progress) + best + format("  (%.1f s)", report.seconds);
  if (heartbeat_) return heartbeat_->print(text);
  clear();
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void TrainScreen::failed_save(const train::SaveFailure& failure) {
  clear();
  std::fflush(stdout);
  std::fprintf(
      stderr,
      "lamina: warning: step %lld: %s was not saved: %s. The previous checkpoint is kept; training continues and "
      "the next save tries again\n",
      static_cast<long long>(failure.progress.step), failure.folder.c_str(), failure.reason.c_str());
}

void TrainScreen::summary(const train::TimeSpent& spent) {
  clear();
  heartbeat_.reset();
  const train::StepTimes& steps = spent.steps;
  const double operators = steps.total() - steps.data;
  const double training = spent.all - spent.evaluations - spent.checkpoints;
  if (training <= 0) return;
  const auto share = [&](const char* what, double seconds) {
    return seconds > 0 ? format("%s %.0f %%, ", what, 100 * seconds / training) : std::string();
  };
  std::printf("%s: %s%s%s%soutside the operators %.2f %% (data %.2f %%)\n", duration(training).c_str(),
              share("forward", steps.forward).c_str(), share("backward", steps.backward).c_str(),
              share("on the GPU", steps.device).c_str(), share("update", steps.update).c_str(),
              100 * (training - operators) / training, 100 * steps.data / training);
  std::printf("besides: evaluations %.1f s, checkpoints %.1f s\n", spent.evaluations, spent.checkpoints);
}

}  // namespace lamina::cli
