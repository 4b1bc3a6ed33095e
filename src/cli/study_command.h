#pragma once

#include <string>

#include "lamina/lab/report/report.h"
#include "lamina/lab/study/study.h"

namespace lamina::cli {

/// Runs or resumes a study in the folder `out`. Shows progress, prints the study's table and writes its report. Throws
/// an Error if a variant could not be run or measured.
void run_study_command(const lab::Study& study, const std::string& out, lab::Columns columns);

}  // namespace lamina::cli
