#include <cstdio>
#include <memory>

#include "lamina/arch/cluster/validation.h"
#include "lamina/cli/commands.h"

namespace lamina::cli {
namespace {

struct BenchPlanArguments {
  std::string rows;
  std::string fit;
};

void run_bench_plan(const BenchPlanArguments& arguments) {
  const std::vector<arch::PublishedRow> rows = arch::read_published(arguments.rows);
  if (!arguments.fit.empty()) {
    const arch::FittedEfficiency fitted = arch::fit_efficiency(rows, arch::load_cluster(arguments.fit));
    std::printf("%s: efficiency.product %.2f, efficiency.memory %.2f; error %.2f %%\n", arguments.fit.c_str(),
                fitted.product, fitted.memory, 100 * fitted.error);
    return;
  }
  std::vector<arch::PredictedRow> predicted;
  for (const arch::PublishedRow& row : rows) {
    predicted.push_back(arch::predict(row, arch::load_cluster(row.cluster)));
  }
  std::fputs(arch::validation_markdown(predicted).c_str(), stdout);
}

}  // namespace

void add_bench_plan(CLI::App& bench) {
  auto arguments = std::make_shared<BenchPlanArguments>();
  CLI::App* command = bench.add_subcommand(
      "plan", "Compare the cluster planner with published step times and memory (Markdown tables), or fit it to them");
  command
      ->add_option("rows", arguments->rows,
                   "File of published figures; the sources have tests/golden/cluster/published.json")
      ->required();
  command->add_option("--fit", arguments->fit,
                      "Instead: fit product and memory efficiency of this cluster to the rows marked as fitted");
  command->callback([arguments] { run_bench_plan(*arguments); });
}

}  // namespace lamina::cli
