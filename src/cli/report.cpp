#include "lamina/lab/report/report.h"

#include <cstdio>
#include <filesystem>

#include "lamina/base/files.h"
#include "lamina/cli/columns_option.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/language_option.h"

namespace lamina::cli {

void add_report(CLI::App& program) {
  struct Arguments {
    std::string results;
    std::string out;
    std::string columns = "standard";
    std::string language = "en";
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand(
      "report", "Write a study's report from its results: report.html, report.md, report.csv, runs.csv and charts");
  command->add_option("results", arguments->results, "results.json of `lamina compare` or `lamina stretch`")
      ->required();
  command->add_option("--out", arguments->out, "Output folder (default: the folder of the results)");
  add_columns_option(*command, arguments->columns);
  add_language_option(*command, arguments->language);
  command->callback([arguments] {
    std::string folder = arguments->out;
    if (folder.empty()) folder = std::filesystem::path(arguments->results).parent_path().string();
    if (folder.empty()) folder = ".";
    for (const std::string& path :
         lab::write_report(read_text(arguments->results), arguments->results, folder, columns_from(arguments->columns),
                           lab::language_named(arguments->language))) {
      std::printf("%s\n", path.c_str());
    }
    if (!lab::report_is_interactive()) {
      std::printf("charts are pictures: this program was built without npm (docs/reference/dependencies.md)\n");
    }
  });
}

}  // namespace lamina::cli
