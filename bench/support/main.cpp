// lamina_bench [--filter TEXT] [--json FILE] [--threads N] [--seconds S]: runs the suites whose name contains TEXT,
// prints a table of ratios and writes the same rows as JSON. The exit code tells whether every figure with a goal
// reached it.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lamina/base/error.h"
#include "support/suite.h"

namespace lamina::bench {
namespace {

std::string goal_of(const Row& row) {
  if (row.at_least) return str(">= ", *row.at_least);
  if (row.at_most) return str("<= ", *row.at_most);
  return "";
}

void print_row(const Row& row) {
  std::printf("%-58s %10.2f %10.2f %-8s %6.2f  %-8s %-4s %s\n", row.what.c_str(), row.ours, row.reference,
              row.unit.c_str(), row.ratio(), goal_of(row).c_str(),
              goal_of(row).empty() ? "" : (row.reached() ? "ok" : "MISS"), row.reference_name.c_str());
}

nlohmann::json to_json(const std::string& suite, const Row& row) {
  nlohmann::json json{{"suite", suite},       {"what", row.what},
                      {"ours", row.ours},     {"reference", row.reference},
                      {"unit", row.unit},     {"reference_name", row.reference_name},
                      {"ratio", row.ratio()}, {"reached", row.reached()}};
  if (row.at_least) json["at_least"] = *row.at_least;
  if (row.at_most) json["at_most"] = *row.at_most;
  return json;
}

int run(const std::string& filter, const std::string& json_path, int threads, double seconds) {
  Context context(threads, seconds);
  nlohmann::json rows = nlohmann::json::array();
  bool all_reached = true;
  for (const Suite& suite : suites()) {
    if (suite.name.find(filter) == std::string::npos) continue;
    std::printf("\n%-58s %10s %10s %-8s %6s  %-8s\n", ("[" + suite.name + "]").c_str(), "ours", "reference", "unit",
                "ratio", "goal");
    const size_t first = context.rows().size();
    suite.run(context);
    for (size_t i = first; i < context.rows().size(); ++i) {
      print_row(context.rows()[i]);
      rows.push_back(to_json(suite.name, context.rows()[i]));
      all_reached = all_reached && context.rows()[i].reached();
    }
    std::fflush(stdout);
  }
  if (!json_path.empty()) {
    std::ofstream file(json_path);
    file << nlohmann::json{{"threads", context.device().threads().count()}, {"rows", rows}}.dump(1) << '\n';
    LAMINA_CHECK(file.good(), "cannot write ", json_path, "; check the folder and the free space");
  }
  return all_reached ? 0 : 1;
}

/// oneDNN's OpenMP threads spin for milliseconds after a call, on the cores that ours need next. OpenMP reads its
/// setting when it is loaded, so the program starts itself again with a spin as short as ours.
void bound_openmp_spin(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  ::setenv("GOMP_SPINCOUNT", "10000", 1);
  ::execv("/proc/self/exe", argv);  // where that fails, the program runs on as it is
}

}  // namespace
}  // namespace lamina::bench

int main(int argc, char** argv) {
  lamina::bench::bound_openmp_spin(argv);
  CLI::App app("Measures operators against the limits of this machine and against other libraries");
  std::string filter;
  std::string json;
  int threads = 0;
  double seconds = 0.4;
  app.add_option("--filter", filter, "Run only suites whose name contains this");
  app.add_option("--json", json, "Also write the rows to this file");
  app.add_option("--threads", threads, "Worker threads; 0 means all cores")->check(CLI::NonNegativeNumber);
  app.add_option("--seconds", seconds, "Time spent on each measurement")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    return lamina::bench::run(filter, json, threads, seconds);
  } catch (const std::exception& error) {
    std::cerr << "lamina_bench: " << error.what() << '\n';
    return 2;
  }
}
