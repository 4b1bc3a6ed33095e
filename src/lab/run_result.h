#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lamina::lab {

/// What a run gave. Nothing in it depends on the study that asked for it: it is kept in the run's folder and read back
/// by any study with the same run.
struct RunResult {
  int64_t seed = 0;
  std::string folder;               ///< its name in runs/: the run's hash; not written into the folder itself
  std::optional<double> best_loss;  ///< on the validation data
  int64_t best_step = 0;
  std::optional<double> final_loss;     ///< the same at the end
  std::optional<double> bits_per_byte;  ///< at the best
  std::optional<double> accuracy;       ///< in a task
  std::optional<double> accuracy_long;  ///< in the task's longer cases
  std::optional<double> tokens_per_second;
  std::optional<double> decode_tokens_per_second;
  int64_t peak_memory_bytes = 0;
  int64_t spikes = 0;
  int64_t gradient_outliers = 0;
  bool diverged = false;
  std::string divergence;  ///< what was not finite, and when
  double seconds = 0;      ///< of the training, evaluations and checkpoints included
  std::vector<double> curve_step;
  std::vector<double> curve_loss;  ///< of logged updates
  std::vector<double> evaluation_step;
  std::vector<double> evaluation_loss;
  std::vector<double> evaluation_seconds;  ///< of training until then

  /// The first evaluation at or below a loss: its index.
  std::optional<size_t> reached(double target) const;
};

std::string write_run_result(const RunResult& result);
/// What write_run_result wrote; nothing where the file is of another version or damaged: the run is made anew.
std::optional<RunResult> read_run_result(const std::string& path);

/// From a run's folder: curves, evaluations, stability and speed of its log.jsonl.
void read_log_into(RunResult& result, const std::string& log_file);

}  // namespace lamina::lab
