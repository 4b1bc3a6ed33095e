#include "lamina/lab/report/study_logs.h"

#include <filesystem>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/lab/report/results_file.h"

namespace lamina::lab {
namespace {

namespace fs = std::filesystem;

std::vector<train::RunPoint> points_of(const report::Series& series) {
  std::vector<train::RunPoint> points;
  for (size_t i = 0; i < series.step.size(); ++i) {
    if (series.loss[i]) points.push_back({series.step[i], 0, 0, *series.loss[i]});
  }
  return points;
}

train::RunLog log_of(const fs::path& study, const report::Variant& variant, const report::Run& run) {
  train::RunLog log;
  const fs::path folder = study / "runs" / run.folder;
  const bool is_name = run.folder == fs::path(run.folder).filename();  // rejects paths to other folders
  if (!run.folder.empty() && is_name && file_exists(folder / "log.jsonl")) {
    log = train::read_run_log(folder.string());
  } else {
    log.train = points_of(run.curve);
    log.validation = points_of(run.evaluations);
  }
  log.name = str(variant.label, ", seed ", run.seed);
  log.variant = variant.label;
  return log;
}

std::vector<train::RunLog> study_logs(const fs::path& results) {
  const report::Study study = report::read_study(read_text(results.string()), results.string());
  std::vector<train::RunLog> logs;
  for (const report::Variant& variant : study.variants) {
    for (const report::Run& run : variant.runs) {
      train::RunLog log = log_of(results.parent_path(), variant, run);
      if (!log.train.empty() || !log.validation.empty()) logs.push_back(std::move(log));
    }
  }
  LAMINA_CHECK(!logs.empty(), results.string(),
               ": no run of this study has a loss yet; wait for the first finished run");
  return logs;
}

/// Renames the log of a run given by its own folder, STUDY/runs/HASH, to "variant, seed 2". Keeps the hash if no study
/// lists the run.
void name_after_variant(train::RunLog& log, const fs::path& folder) {
  const fs::path results = folder.parent_path().parent_path() / "results.json";
  if (folder.parent_path().filename() != "runs" || !file_exists(results)) return;
  const report::Study study = report::read_study(read_text(results.string()), results.string());
  for (const report::Variant& variant : study.variants) {
    for (const report::Run& run : variant.runs) {
      if (run.folder != folder.filename()) continue;
      log.name = str(variant.label, ", seed ", run.seed);
      return;
    }
  }
}

}  // namespace

std::vector<train::RunLog> read_logs(const std::string& path) {
  fs::path given = fs::absolute(path).lexically_normal();
  if (!given.has_filename()) given = given.parent_path();
  if (given.filename() == "results.json") return study_logs(given);
  if (file_exists(given / "results.json")) return study_logs(given / "results.json");
  LAMINA_CHECK(!file_exists(given / "study.json"), path,
               ": this study has no results.json yet; wait for its first finished run");
  train::RunLog log = train::read_run_log(path);
  name_after_variant(log, given.filename() == "log.jsonl" ? given.parent_path() : given);
  return {log};
}

}  // namespace lamina::lab
