#pragma once

#include <string>
#include <vector>

#include "lamina/train/run_log.h"

namespace lamina::lab {

/// Reads the logs that an argument of `lamina plot` names: a run's folder or log.jsonl; or a study's folder or
/// results.json, for all its finished runs. Runs of a study are named by variant and seed, even if given by their own
/// folder. If the study's runs/ folder no longer exists, the curves in results.json are used; these have steps, but no
/// tokens or seconds.
std::vector<train::RunLog> read_logs(const std::string& path);

}  // namespace lamina::lab
