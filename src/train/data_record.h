#pragma once

#include <functional>
#include <string>

#include "lamina/train/run_data.h"

namespace lamina::train {

/// Reports how many bytes of a token file were checked.
using CheckProgress = std::function<void(const std::string& file, int64_t done, int64_t total)>;

/// Reads the token files of a run once and compares them with their checksums. Then compares size, checksum and
/// tokenizer with data.json in the run's folder, which the first call writes. Other data than the run began with is an
/// Error, unless `accept_new`; another tokenizer always is: the model's weights know only the first one.
void check_run_data(const std::string& run_folder, const RunData& data, bool accept_new, const CheckProgress& progress);

}  // namespace lamina::train
