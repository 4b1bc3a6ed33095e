#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "lamina/base/files.h"
#include "lamina/cli/command_line.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/device_option.h"
#include "lamina/cli/heartbeat.h"
#include "lamina/cli/stop_signal.h"
#include "lamina/cli/terminal.h"
#include "lamina/cli/usage.h"
#include "lamina/lab/report/report.h"
#include "lamina/lab/stretch/stretch.h"

namespace lamina::cli {
namespace {

constexpr const char* kResults = "results.json";
constexpr const char* kPartial = "results-partial.json";

struct StretchArguments {
  lab::StretchOptions options;
  bool no_passkey = false;
  DeviceChoice device;
};

/// Shows progress. A terminal has one line that is redrawn. Other outputs get a line per finished kind, and at least
/// one every ten seconds.
class StretchScreen {
 public:
  StretchScreen() {
    if (!terminal_) heartbeat_.emplace(stdout);
  }
  void progress(const lab::StretchProgress& progress) {
    share_ = progress.share;
    left_ = progress.seconds_left;
    std::string line = progress.what;
    char rest[64];
    std::snprintf(rest, sizeof rest, "  %3.0f %%  ", 100 * progress.share);
    line += rest + (left_ > 0 ? duration(left_) + " left" : std::string());
    if (heartbeat_) return heartbeat_->note(line);
    std::printf("\r\033[K%s", line.substr(0, terminal_width(STDOUT_FILENO) - 1).c_str());
    std::fflush(stdout);
  }
  void row(const lab::StretchRow& row) {
    char line[128];
    std::snprintf(line, sizeof line, "%-30s done; %.0f %% of the work, %s left", row.label.c_str(), 100 * share_,
                  duration(left_).c_str());
    if (heartbeat_) return heartbeat_->print(line);
    clear();
    std::printf("%s\n", line);
    std::fflush(stdout);
  }
  /// Clears the drawn line and stops all output.
  void end() {
    clear();
    heartbeat_.reset();
  }

 private:
  void clear() {
    if (terminal_) std::fputs("\r\033[K", stdout);
  }

  bool terminal_ = ::isatty(STDOUT_FILENO) != 0;
  std::optional<Heartbeat> heartbeat_;  ///< empty on a terminal
  double share_ = 0;
  double left_ = 0;
};

std::string default_folder(const lab::StretchOptions& options) {
  if (options.model.empty()) return "studies/stretch";
  return "studies/stretch-" + std::filesystem::path(options.model).lexically_normal().filename().string();
}

void run(StretchArguments& arguments) {
  lab::StretchOptions& options = arguments.options;
  options.passkey = !arguments.no_passkey;
  options.command = command_line();
  if (options.folder.empty()) options.folder = default_folder(options);
  const Device device = arguments.device.open();
  StretchScreen screen;
  catch_stop_signals("\nstopping after this update or reading; once more stops at once\n");
  const std::optional<lab::StretchResult> result =
      lab::stretch(options, device,
                   {.progress = [&](const lab::StretchProgress& progress) { screen.progress(progress); },
                    .row = [&](const lab::StretchRow& row) { screen.row(row); },
                    .stop = stop_asked});
  screen.end();
  if (!result) {
    std::printf("stopped, everything is kept in %s; the same command goes on\n", options.folder.c_str());
    return throw_if_stopped();
  }
  std::printf("\n%s\n", lab::stretch_table(*result).c_str());
  const bool failed = std::any_of(result->rows.begin(), result->rows.end(),
                                  [](const lab::StretchRow& row) { return !row.failed.empty(); });
  const std::string results = lab::stretch_json(*result, options);
  const auto file = [&](const char* name) { return (std::filesystem::path(options.folder) / name).string(); };
  // Incomplete results never replace complete ones.
  write_text(file(failed ? kPartial : kResults), results);
  LAMINA_CHECK(!failed, "a training or a reading failed (see the table); what was measured is kept in ", file(kPartial),
               ", ", file(kResults), " was not changed; the same command tries again");
  const std::string page = lab::write_report(results, file(kResults), options.folder).front();
  std::printf("the report is %s, the results are %s\n", page.c_str(), file(kResults).c_str());
}

void add_training(CLI::App& command, lab::StretchOptions& options) {
  command.add_option("--recipe", options.recipe, "How models are trained on the text (lamina train --list)")
      ->capture_default_str();
  command.add_option("--set", options.changes, "Change a value of it: path=value, as in lamina train; several times")
      ->allow_extra_args(false)
      ->take_all();
  command.add_option("--passkey-recipe", options.passkey_recipe, "How models are trained to find passkeys")
      ->capture_default_str();
  command.add_option("--set-passkey", options.passkey_changes, "Change a value of that: path=value; several times")
      ->allow_extra_args(false)
      ->take_all();
}

}  // namespace

void add_stretch(CLI::App& program) {
  auto arguments = std::make_shared<StretchArguments>();
  lab::StretchOptions& options = arguments->options;
  CLI::App* command = program.add_subcommand(
      "stretch",
      "How far models read beyond their training length, for every position kind, or for scalings of a given model");
  command->add_option("--data", options.data, "A text, or a token file (.bin)")->required();
  command->add_option("--model", options.model,
                      "An existing model, as in generate: nothing is trained, scalings of its rotations are applied");
  command->add_option("--tokenizer", options.tokenizer, "Of that model (default: what lies beside it)");
  command->add_option("--out", options.folder, "Folder for runs and results (default: studies/stretch)");
  command
      ->add_option("--kinds", options.kinds,
                   "learned, sinusoidal, t5, rope, alibi, none, window; pi, ntk, dynamic_ntk, yarn (default: all)")
      ->delimiter(',');
  command->add_option("--length", options.length, "Of training (default: the recipe's, or the model's context)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command->add_option("--times", options.times, "Lengths are doubled up to so many times that")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_option("--tokens", options.tokens, "Predicted in each reading (default: four times the longest length)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command->add_flag("--no-passkey", arguments->no_passkey, "Perplexity alone");
  command->add_option("--examples", options.examples, "Passkeys at each length and depth")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_option("--depths", options.depths, "Depths of passkeys, from the start to the end")
      ->capture_default_str()
      ->check(at_least(1));
  add_training(*command, options);
  arguments->device.add_to(*command);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
