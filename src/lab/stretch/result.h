#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lamina::lab {

/// The measurements of a variant at every length.
struct StretchRow {
  std::string variant;                                      ///< name
  std::vector<std::optional<double>> non_overlapping;       ///< perplexity over non-overlapping windows
  std::vector<std::optional<double>> sliding;               ///< perplexity over sliding windows
  std::vector<std::vector<std::optional<double>>> passkey;  ///< [length][depth]; empty: not measured
  std::string cannot;                                       ///< reason for missing perplexities
  std::string passkey_cannot;                               ///< reason for missing passkey results
  bool failed = false;                                      ///< whether a training or a measurement failed
};

/// Results of a study of mode stretch.
struct StretchResult {
  int64_t trained_length = 0;
  std::vector<int64_t> lengths;
  std::vector<double> depths;
  int64_t tokens = 0;  ///< number of predicted tokens at each length
  std::vector<StretchRow> rows;
};

}  // namespace lamina::lab
