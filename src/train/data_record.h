#pragma once

#include <functional>
#include <string>

#include "lamina/train/run_data.h"

namespace lamina::train {

/// Receives how many bytes of a token file have been checked.
using CheckProgress = std::function<void(const std::string& file, int64_t done, int64_t total)>;

/// Verifies the checksums of a run's token files, then compares size, checksum and tokenizer with data.json in the
/// run's folder. The first call writes data.json. Throws Error if the data changed, unless `accept_new`. A changed
/// tokenizer is always an Error, because the weights only fit the first one.
void check_run_data(const std::string& run_folder, const RunData& data, bool accept_new, const CheckProgress& progress);

}  // namespace lamina::train
