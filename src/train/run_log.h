#pragma once

#include <string>
#include <vector>

namespace lamina::train {

/// A logged loss, and the steps, tokens and seconds up to it.
struct RunPoint {
  double step = 0;
  double tokens = 0;
  double seconds = 0;
  double loss = 0;
};

/// Losses from a run's log.
struct RunLog {
  std::string name;
  std::string variant;  ///< runs of a variant share a style and a legend entry; empty: not part of a study
  std::vector<RunPoint> train;
  std::vector<RunPoint> validation;
};

/// Reads log.jsonl, given its path or the run's folder. A line is {"step": …, "loss": …, "tokens": …, "seconds": …},
/// {"step": …, "validation_loss": …}, or both in one. A line without tokens or seconds takes them from the previous
/// line. A truncated last line is ignored, because the run may be writing it. If a run was resumed from an earlier
/// step, old lines of later steps are dropped.
RunLog read_run_log(const std::string& path);

/// Parses the text of a log. `name` is used in messages.
RunLog parse_run_log(const std::string& text, const std::string& name);

}  // namespace lamina::train
