#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lamina/lab/stretch/readings.h"
#include "lamina/train/trainer.h"

namespace lamina::lab {

/// Options of a study of how well models read beyond their training length.
struct StretchOptions {
  std::string folder;                ///< holds the runs, the measurements and results.json
  std::string data;                  ///< text or token file
  std::string recipe = "stretch";    ///< for the runs on text
  std::vector<std::string> changes;  ///< recipe changes, path=value
  std::string passkey_recipe = "stretch-passkey";
  std::vector<std::string> passkey_changes;
  /// Existing model in any supported format. Nothing is trained; RoPE scalings are applied to it.
  std::string model;
  std::string tokenizer;           ///< tokenizer of that model; empty: the one next to it
  std::vector<std::string> kinds;  ///< names of kinds and scalings; empty: all
  int64_t length = 0;              ///< training length; 0: the recipe's, or the model's context
  int64_t times = 16;              ///< lengths double up to this multiple of the training length
  int64_t tokens = 0;              ///< tokens to predict at each length; 0: four times the longest length
  bool passkey = true;
  int64_t examples = 16;  ///< passkeys per length and depth
  int64_t depths = 5;
  std::string command;  ///< command line, stored in the results
};

/// Measurements of one kind or scaling at every length.
struct StretchRow {
  std::string name;
  std::string label;
  std::vector<std::string> switches;
  arch::ArchSpec architecture;                              ///< text model, as configured for the longest length
  std::string run;                                          ///< training folder; empty if another row's run is used
  std::vector<std::optional<double>> side_by_side;          ///< perplexity at each length, non-overlapping windows
  std::vector<std::optional<double>> sliding;               ///< perplexity at each length, sliding windows
  std::vector<std::vector<std::optional<double>>> passkey;  ///< [length][depth]; empty: not measured
  std::string cannot;                                       ///< reason for missing perplexities
  std::string passkey_cannot;                               ///< reason for missing passkey results
  std::string failed;                                       ///< error of a training or a measurement; empty: none
};

struct StretchResult {
  int64_t trained_length = 0;
  std::vector<int64_t> lengths;
  std::vector<double> depths;
  int64_t tokens = 0;
  int threads = 1;
  std::vector<StretchRow> rows;
};

struct StretchProgress {
  std::string what;
  double share = 0;         ///< share of the total work that is done
  double seconds_left = 0;  ///< at the current speed; 0: unknown
};
struct StretchWatch {
  std::function<void(const StretchProgress&)> progress;
  std::function<void(const StretchRow&)> row;  ///< called when a row is complete
  /// Polled after every update and every measurement.
  std::function<bool()> stop;
};

/// Trains and measures whatever is not there yet. Validates everything first: throws SpecError with all problems before
/// the first update. Returns nothing if stopped; the same options then resume. A row reports if its training failed or
/// which lengths its kind cannot read.
std::optional<StretchResult> stretch(const StretchOptions& options, const Device& device, const StretchWatch& watch);

/// Contents of results.json, in the format that reports read.
std::string stretch_json(const StretchResult& result, const StretchOptions& options);
/// Table for the terminal.
std::string stretch_table(const StretchResult& result);

}  // namespace lamina::lab
