#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lamina::lab {

/// The result of a run. It does not depend on the study: it is stored in the run's folder, and any study with the same
/// run reads it.
struct RunResult {
  int64_t seed = 0;
  std::string folder;               ///< name in runs/ (the run's hash); not stored in the folder itself
  std::optional<double> best_loss;  ///< lowest validation loss
  int64_t best_step = 0;
  std::optional<double> final_loss;     ///< validation loss at the end
  std::optional<double> bits_per_byte;  ///< at the evaluation with the lowest loss
  std::optional<double> accuracy;       ///< tasks only
  std::optional<double> accuracy_long;  ///< accuracy on the task's longer examples
  std::optional<double> tokens_per_second;
  std::optional<double> decode_tokens_per_second;
  int64_t peak_memory_bytes = 0;
  int64_t spikes = 0;
  int64_t gradient_outliers = 0;
  bool diverged = false;
  std::string divergence;       ///< what was not finite, and at which step
  double seconds = 0;           ///< training time, including evaluations and checkpoints
  int64_t tokens_per_step = 0;  ///< 0 in results of older versions
  std::vector<double> curve_step;
  std::vector<double> curve_loss;     ///< losses of the logged updates
  std::vector<double> curve_seconds;  ///< training time up to each; empty in results of older versions
  std::vector<double> evaluation_step;
  std::vector<double> evaluation_loss;
  std::vector<double> evaluation_seconds;  ///< training time up to each evaluation

  /// Number of training tokens up to these steps. Empty if tokens_per_step is unknown.
  std::vector<double> tokens_at(const std::vector<double>& steps) const;
  /// Index of the first evaluation whose loss is at or below `target`.
  std::optional<size_t> reached(double target) const;
};

std::string write_run_result(const RunResult& result);
/// Reads a result that write_run_result() wrote. Empty if it is damaged or of another version; the run is then
/// repeated.
std::optional<RunResult> read_run_result(const std::string& path);

/// Reads curves, evaluations, stability and speed from log.jsonl.
void read_log_into(RunResult& result, const std::string& log_file);

}  // namespace lamina::lab
