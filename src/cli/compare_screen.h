#pragma once

#include <optional>
#include <string>

#include "lamina/cli/heartbeat.h"
#include "lamina/lab/runner.h"

namespace lamina::cli {

/// A study on the screen: on a terminal one line that is redrawn; elsewhere a line for each run that ends, and at least
/// one every ten seconds.
class CompareScreen {
 public:
  explicit CompareScreen(bool terminal);

  void progress(const lab::StudyProgress& progress);
  void run(const lab::RunReport& report);
  void stage(const std::string& what);
  /// Clears the drawn line.
  void clear();
  /// Prints nothing from now on.
  void end();

 private:
  void print(const std::string& line);

  bool terminal_;
  std::optional<Heartbeat> heartbeat_;  ///< none on a terminal
};

}  // namespace lamina::cli
