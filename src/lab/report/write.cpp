#include <filesystem>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/lab/report/figures.h"
#include "lamina/lab/report/report.h"

namespace lamina::lab {

std::vector<std::string> write_report(const std::string& results, const std::string& name, const std::string& folder,
                                      Columns columns, Language language) {
  std::vector<std::pair<std::string, std::string>> files{
      {"report.html", report_html(results, name, language)},
      {"report.md", report_markdown(results, name, columns, language)},
      {"report.csv", report_csv(results, name, columns)},
      {"runs.csv", runs_csv(results, name)}};
  const report::Study study = report::read_study(results, name, language);
  for (const report::Figure& figure : report::figures_of(study)) {
    files.emplace_back(figure.id + ".svg", figure.svg);
    files.emplace_back(figure.id + ".csv", report::figure_csv(study, figure.id));
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  LAMINA_CHECK(folder_exists(folder), folder,
               ": cannot create the folder: ", error ? error.message() : "a file has that name",
               "; choose another folder with --out");
  std::vector<std::string> paths;
  for (const auto& [file, text] : files) {
    paths.push_back((std::filesystem::path(folder) / file).string());
    write_text(paths.back(), text);
  }
  return paths;
}

}  // namespace lamina::lab
