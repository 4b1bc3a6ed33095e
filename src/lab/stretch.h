#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lamina/lab/length_reading.h"
#include "lamina/train/trainer.h"

namespace lamina::lab {

/// How far models read beyond the length they were trained at.
struct StretchOptions {
  std::string folder;                ///< runs, what was measured, results.json
  std::string data;                  ///< a text or a token file
  std::string recipe = "stretch";    ///< of the runs on text
  std::vector<std::string> changes;  ///< of it, path=value
  std::string passkey_recipe = "stretch-passkey";
  std::vector<std::string> passkey_changes;
  /// An existing model, in any format that is read: nothing is trained, scalings are applied to it.
  std::string model;
  std::string tokenizer;           ///< of that model; empty: the one beside it
  std::vector<std::string> kinds;  ///< names of kinds and scalings; empty: all
  int64_t length = 0;              ///< of training; 0: the recipe's, or the model's context
  int64_t times = 16;              ///< lengths are doubled up to so many times that of training
  int64_t tokens = 0;              ///< predicted in each reading; 0: four times the longest length
  bool passkey = true;
  int64_t examples = 16;  ///< passkeys at each length and depth
  int64_t depths = 5;
  std::string command;  ///< how it was called, for the results
};

/// One way to read, at every length.
struct StretchRow {
  std::string name;
  std::string label;
  std::vector<std::string> switches;
  arch::ArchSpec architecture;                              ///< as it reads the longest length; of the text's model
  std::string run;                                          ///< folder of the training; empty where it is another's
  std::vector<std::optional<double>> side_by_side;          ///< perplexity at each length
  std::vector<std::optional<double>> sliding;               ///< the same
  std::vector<std::vector<std::optional<double>>> passkey;  ///< [length][depth]; empty: not measured
  std::string cannot;                                       ///< why some of the perplexities are missing
  std::string passkey_cannot;                               ///< why passkeys are
  std::string failed;                                       ///< a training or a reading threw this; empty: none did
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
  double share = 0;         ///< of all work, done
  double seconds_left = 0;  ///< at the speed so far; 0: not known yet
};
struct StretchWatch {
  std::function<void(const StretchProgress&)> progress;
  std::function<void(const StretchRow&)> row;  ///< one is complete
  /// Asked after every update and every reading.
  std::function<bool()> stop;
};

/// Trains what is not trained yet, measures what is not measured yet. Everything is checked first: SpecError lists
/// every problem before the first update. Empty if it was stopped; called again with the same options it resumes. A row
/// says if its training failed, or at which lengths its kind cannot read.
std::optional<StretchResult> stretch(const StretchOptions& options, const Device& device, const StretchWatch& watch);

/// results.json of it, as the lab's reports read it.
std::string stretch_json(const StretchResult& result, const StretchOptions& options);
/// For the terminal.
std::string stretch_table(const StretchResult& result);

}  // namespace lamina::lab
