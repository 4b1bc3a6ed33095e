#pragma once

#include <optional>
#include <string>

#include "lamina/cli/heartbeat.h"
#include "lamina/train/peak_share.h"
#include "lamina/train/trainer.h"

namespace lamina::cli {

/// Shows the progress of a run. A terminal has one line that is redrawn. Other outputs get a line per logged update,
/// and at least one every ten seconds.
class TrainScreen {
 public:
  TrainScreen(const train::Trainer& trainer, train::PeakShare share, bool terminal);

  void update(const train::UpdateReport& report);
  void evaluation(const train::EvaluationReport& report);
  /// Warns that a checkpoint could not be saved.
  void failed_save(const train::SaveFailure& failure);
  /// Prints how the time was spent.
  void summary(const train::TimeSpent& spent);

 private:
  /// The progress line, with at most `width` characters.
  std::string line(const train::UpdateReport& report, size_t width);
  void clear();

  int64_t steps_;
  const Device& device_;
  train::PeakShare share_;
  bool terminal_;
  std::optional<Heartbeat> heartbeat_;  ///< empty on a terminal
  double drawn_at_ = 0;                 ///< run time in seconds when the line was last drawn
};

}  // namespace lamina::cli
