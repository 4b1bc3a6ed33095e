#pragma once

#include <functional>
#include <string>

#include "lamina/data/prepare.h"

namespace lamina::cli {

/// How an amount of work is written, such as arch::short_bytes.
using Amount = std::string (*)(double value);
std::string count_of_tokens(double value);

/// Watchers of long jobs, which report on standard error. On a terminal they draw one line with the share done, the rate
/// and the time left, and clear it at the end. Elsewhere they print a line at least every ten seconds and one at the
/// end (heartbeat.h). After a stop signal the watcher throws Stopped (stop_signal.h), so the job unwinds and removes
/// its temporary files.
std::function<void(int64_t done, int64_t total)> progress_of(const std::string& job, Amount amount);
/// The same for text becoming tokens.
data::PrepareWatch progress_of_preparation();

}  // namespace lamina::cli
