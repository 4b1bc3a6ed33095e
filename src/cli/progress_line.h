#pragma once

#include <functional>
#include <string>

#include "lamina/data/prepare.h"

namespace lamina::cli {

/// A function that formats an amount of work, for example arch::short_bytes.
using Amount = std::string (*)(double value);
std::string count_of_tokens(double value);

/// Progress callbacks for long jobs, with output to standard error. On a terminal they draw one line with share, rate
/// and remaining time, and clear it at the end. Otherwise they print a line at least every ten seconds and one at the
/// end (heartbeat.h). After a stop signal they throw Stopped (stop_signal.h), so that the job ends and removes its
/// temporary files.
std::function<void(int64_t done, int64_t total)> progress_of(const std::string& job, Amount amount);
/// Progress callback for tokenizing text.
data::PrepareWatch progress_of_preparation();

}  // namespace lamina::cli
