#pragma once

#include <string>
#include <vector>

namespace lamina::train {

struct RunPoint {
  double step = 0;
  double tokens = 0;
  double seconds = 0;
  double loss = 0;
};

/// The losses in a run's log.
struct RunLog {
  std::string name;
  std::string variant;  ///< of a study: its runs share a style and a line of the legend; empty: the run stands alone
  std::vector<RunPoint> train;
  std::vector<RunPoint> validation;
};

/// From a run's folder (its log.jsonl) or such a file: lines {"step": …, "loss": …, "tokens": …, "seconds": …} and
/// {"step": …, "validation_loss": …}, in one line or apart. Where a line has no tokens or seconds they are those of the
/// line before. A last line that is cut off is left out: the run may be going on. Where steps go back, because a run
/// was taken up again, what was there of later steps is forgotten.
RunLog read_run_log(const std::string& path);

/// The same from text; `name` stands in messages.
RunLog parse_run_log(const std::string& text, const std::string& name);

}  // namespace lamina::train
