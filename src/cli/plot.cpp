#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/cli/commands.h"
#include "lamina/lab/report/study_logs.h"
#include "lamina/train/curves.h"

namespace lamina::cli {
namespace {

struct PlotArguments {
  std::vector<std::string> runs;
  std::string out;
  std::string x = "step";
  std::string title;
  double smoothing = 0;
};

train::CurveX x_of(const std::string& name) {
  if (name == "step") return train::CurveX::step;
  if (name == "tokens") return train::CurveX::tokens;
  LAMINA_CHECK(name == "seconds", "--x ", name, ": expected step, tokens or seconds");
  return train::CurveX::seconds;
}

/// Sets the size to that of the terminal, or to 100 × 24 if the output is not a terminal.
void fit_terminal(train::CurveOptions& options) {
  struct winsize size {};
  options.colours = ::isatty(STDOUT_FILENO) != 0;
  if (!options.colours || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 30 || size.ws_row < 10)
    return;
  options.columns = std::min<int>(size.ws_col, 160);
  options.rows = std::min<int>(size.ws_row - 6, 36);
}

void plot(const PlotArguments& arguments) {
  train::CurveOptions options;
  options.x = x_of(arguments.x);
  options.smoothing = arguments.smoothing;
  options.title = arguments.title;
  std::vector<train::RunLog> runs;
  for (const std::string& path : arguments.runs) {
    for (train::RunLog& log : lab::read_logs(path)) runs.push_back(std::move(log));
  }
  const std::string& out = arguments.out;
  if (out.empty()) {
    fit_terminal(options);
    std::fputs(train::curves_text(runs, options).c_str(), stdout);
    return;
  }
  LAMINA_CHECK(out.ends_with(".svg") || out.ends_with(".png"), "--out ", out,
               ": expected a file name ending in .svg or .png");
  if (out.ends_with(".png")) {
    train::write_curves_png(runs, options, out);
  } else {
    write_text(out, train::curves_svg(runs, options));
  }
  std::printf("%s\n", out.c_str());
}

}  // namespace

void add_plot(CLI::App& program) {
  auto arguments = std::make_shared<PlotArguments>();
  CLI::App* command =
      program.add_subcommand("plot", "Plot the loss curves of runs or of a study: in the terminal, or as SVG or PNG");
  command->add_option("runs", arguments->runs, "Run folders (or their log.jsonl), or a study's folder for all its runs")
      ->required();
  command->add_option("--out", arguments->out, "File ending in .svg or .png (default: the terminal)");
  command->add_option("--x", arguments->x, "x axis: step, tokens or seconds")->capture_default_str();
  command
      ->add_option("--smooth", arguments->smoothing,
                   "Smooth the training loss: weight of the running mean at each point; 0.9 is usual")
      ->check(CLI::Range(0.0, 0.9999));
  command->add_option("--title", arguments->title, "Title above the chart");
  command->callback([arguments] { plot(*arguments); });
}

}  // namespace lamina::cli
