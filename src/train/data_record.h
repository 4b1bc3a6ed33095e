#pragma once

#include <functional>
#include <string>

#include "lamina/train/run_data.h"

namespace lamina::train {

/// Called with the number of bytes of a token file that have been verified.
using CheckProgress = std::function<void(const std::string& file, int64_t done, int64_t total)>;

/// Verifies the checksums of a run's token files. Then compares their size, checksum and tokenizer with data.json in
/// the run's folder; the first call writes data.json. Throws an Error if the data changed, unless `accept_new`. A
/// changed tokenizer is always an Error, because the weights fit only the first one.
void check_run_data(const std::string& run_folder, const RunData& data, bool accept_new, const CheckProgress& progress);

}  // namespace lamina::train
