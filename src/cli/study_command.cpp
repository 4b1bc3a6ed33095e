#include "lamina/cli/study_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "lamina/base/files.h"
#include "lamina/cli/command_line.h"
#include "lamina/cli/progress_line.h"
#include "lamina/cli/stop_signal.h"
#include "lamina/cli/study_screen.h"
#include "lamina/cli/terminal.h"
#include "lamina/lab/run/power.h"
#include "lamina/lab/run/run_study.h"

namespace lamina::cli {
namespace {

/// Throws an Error if a variant has no runs, or if its measurement failed. Variants that a search dropped are no
/// failures.
void fail_if_incomplete(const lab::Results& results) {
  if (results.study.mode == lab::Mode::search) return;
  size_t failed = 0;
  for (const lab::VariantResult& variant : results.variants) failed += variant.cannot.empty() ? 0 : 1;
  LAMINA_CHECK(failed == 0, failed, " of ", results.variants.size(),
               " variants could not be run; the table and results.json give the reasons");
  if (!results.stretch) return;
  std::vector<std::pair<std::string, std::string>> failures;  // (reason, variants)
  for (const lab::StretchRow& row : results.stretch->rows) {
    if (!row.failed) continue;
    const bool is_text = !row.non_overlapping.front();
    const std::string reason = is_text ? row.cannot : "passkeys: " + row.passkey_cannot;
    const auto same = std::find_if(failures.begin(), failures.end(), [&](const auto& f) { return f.first == reason; });
    if (same == failures.end()) {
      failures.emplace_back(reason, row.variant);
    } else {
      same->second += ", " + row.variant;
    }
  }
  std::string reasons;
  for (const auto& [reason, variants] : failures) reasons += str("\n  ", variants, ": ", reason);
  LAMINA_CHECK(reasons.empty(), "a training or a measurement failed:", reasons,
               "\nthe other results are complete; fix the cause and run the same command again");
}

}  // namespace

void run_study_command(const lab::Study& study, const std::string& out, lab::Columns columns) {
  const std::string power = lab::power_sentence(study);
  if (!power.empty()) std::printf("power: %s\n", power.c_str());
  std::fflush(stdout);
  StudyScreen screen(::isatty(STDOUT_FILENO) != 0);
  catch_stop_signals("\nstopping: every active run writes a checkpoint; press Ctrl-C again to stop immediately\n");
  const lab::Results results =
      lab::run_study(study, {.folder = out,
                             .command = command_line(),
                             .watcher = {.on_progress = [&](const lab::StudyProgress& p) { screen.progress(p); },
                                         .on_run = [&](const lab::RunReport& report) { screen.run(report); },
                                         .on_stage = [&](const std::string& what) { screen.stage(what); },
                                         .stop = stop_asked},
                             .preparing = progress_of_preparation()});
  screen.end();
  const std::string file = out + "/results.json";
  const std::string text = read_text(file);
  std::printf("\n%s\n", lab::report_text(text, file, columns).c_str());
  const std::string page = lab::write_report(text, file, out, columns).front();
  if (results.complete) {
    std::printf("%s; the report is %s, the results are %s\n", duration(results.seconds).c_str(), page.c_str(),
                file.c_str());
    return fail_if_incomplete(results);
  }
  std::printf(
      "stopped; finished runs and checkpoints are kept, %s has the results so far; resume with: lamina compare %s\n",
      file.c_str(), out.c_str());
  throw_if_stopped();
}

}  // namespace lamina::cli
