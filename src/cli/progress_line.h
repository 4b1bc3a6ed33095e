#pragma once

#include <functional>
#include <string>

#include "lamina/data/prepare.h"

namespace lamina::cli {

/// How an amount of work is written, such as arch::short_bytes.
using Amount = std::string (*)(double value);
std::string count_of_tokens(double value);

/// Watchers of long jobs, which say on standard error how far these are. On a terminal that is one line, written over
/// with the share done, the rate and the time left, and gone when the job is done or the watcher is; elsewhere the same
/// once a minute, and a line at the end.
std::function<void(int64_t done, int64_t total)> progress_of(const std::string& job, Amount amount);
/// The same for text becoming tokens.
data::PrepareWatch progress_of_preparation();

}  // namespace lamina::cli
