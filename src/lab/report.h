#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lamina::lab {

/// Of the tables in texts, Markdown and CSV: the judged measure with its comparison, perplexity, speed, memory and
/// parameters, or everything that was measured.
enum class Columns : uint8_t { standard, all };

/// The pages of a study, made from the text of its results file (docs/report.md describes it). Everything is checked
/// first: an Error says what is missing or wrong, and where. `name` goes into messages.
///
/// report.html is one file that needs nothing else: tables sort, charts answer the pointer and follow light and dark.
/// Where the library was built without the chart library, or where scripts are off, it shows the same charts as
/// pictures.
std::string report_html(const std::string& results, const std::string& name);
/// Tables and findings for a repository's page; the pictures are the files that write_report puts beside it.
std::string report_markdown(const std::string& results, const std::string& name, Columns columns = Columns::standard);
/// A line for each variant: the mean and spread of each measure, and of the judged one the difference to the reference,
/// p and mark.
std::string report_csv(const std::string& results, const std::string& name, Columns columns = Columns::standard);
/// A line for each run of each variant.
std::string runs_csv(const std::string& results, const std::string& name);

/// report.html, report.md, report.csv, runs.csv and the charts as SVG files into `folder`, which is made where it is
/// missing. Returns the paths, report.html first.
std::vector<std::string> write_report(const std::string& results, const std::string& name, const std::string& folder,
                                      Columns columns = Columns::standard);

/// Whether the charts of report_html answer the pointer, or are pictures.
bool report_is_interactive();

}  // namespace lamina::lab
