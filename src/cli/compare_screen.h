#pragma once

#include <string>

#include "lamina/lab/runner.h"

namespace lamina::cli {

/// A study on the screen: on a terminal one line drawn again and again, elsewhere a line for each run that ends.
class CompareScreen {
 public:
  explicit CompareScreen(bool terminal) : terminal_(terminal) {}

  void progress(const lab::StudyProgress& progress);
  void run(const lab::RunReport& report);
  void stage(const std::string& what);
  /// Takes the drawn line away.
  void clear();

 private:
  bool terminal_;
};

}  // namespace lamina::cli
