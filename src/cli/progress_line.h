#pragma once

#include <functional>
#include <string>

#include "lamina/data/prepare.h"

namespace lamina::cli {

/// Formats an amount of work, such as arch::short_bytes.
using Amount = std::string (*)(double value);
std::string count_of_tokens(double value);

/// Progress callbacks for long jobs; output goes to standard error. On a terminal they draw one line with share, rate
/// and time left, and clear it at the end. Otherwise they print a line at least every ten seconds and one at the end
/// (heartbeat.h). After a stop signal they throw Stopped (stop_signal.h), so that the job unwinds and removes its
/// temporary files.
std::function<void(int64_t done, int64_t total)> progress_of(const std::string& job, Amount amount);
/// Progress callback for tokenizing text.
data::PrepareWatch progress_of_preparation();

}  // namespace lamina::cli
