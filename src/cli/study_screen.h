#pragma once

#include <optional>
#include <string>

#include "lamina/cli/heartbeat.h"
#include "lamina/lab/run/runner.h"

namespace lamina::cli {

/// Shows the progress of a study. A terminal has one line that is redrawn. Other outputs get a line per finished run,
/// and at least one every ten seconds.
class StudyScreen {
 public:
  explicit StudyScreen(bool terminal);

  void progress(const lab::StudyProgress& progress);
  void run(const lab::RunReport& report);
  void stage(const std::string& what);
  /// Clears the drawn line.
  void clear();
  /// Stops all output.
  void end();

 private:
  void print(const std::string& line);

  bool terminal_;
  std::optional<Heartbeat> heartbeat_;  ///< empty on a terminal
};

}  // namespace lamina::cli
