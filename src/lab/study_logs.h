#pragma once

#include <string>
#include <vector>

#include "lamina/train/run_log.h"

namespace lamina::lab {

/// The logs that a path of `lamina plot` names: a run's folder or log.jsonl, or a study's folder or results.json, which
/// stands for all its finished runs. Runs of a study are named after their variant and seed, also if one of them is
/// given by its own folder. If a study's runs/ folder is gone, the curves in its results.json serve instead; they have
/// steps but neither tokens nor seconds.
std::vector<train::RunLog> read_logs(const std::string& path);

}  // namespace lamina::lab
