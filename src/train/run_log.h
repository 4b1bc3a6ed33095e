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

/// Losses from a run's log.
struct RunLog {
  std::string name;
  std::string variant;  ///< runs of one variant share a style and a legend entry; empty: not part of a study
  std::vector<RunPoint> train;
  std::vector<RunPoint> validation;
};

/// Reads log.jsonl, given its path or the run's folder. Lines are {"step": …, "loss": …, "tokens": …, "seconds": …} and
/// {"step": …, "validation_loss": …}, or both in one. A line without tokens or seconds takes them from the previous
/// line. A truncated last line is ignored, because the run may still be writing. If a run was resumed from an earlier
/// step, the old lines of later steps are dropped.
RunLog read_run_log(const std::string& path);

/// Parses log text; `name` appears in messages.
RunLog parse_run_log(const std::string& text, const std::string& name);

}  // namespace lamina::train
